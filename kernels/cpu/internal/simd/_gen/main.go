// Command _gen writes the assembly of package simd: one family of kernels a run, every kernel of it
// for both instruction sets of amd64 and both element types. With -neon it writes all that there is
// for arm64, see package neon, and with -dispatch the Go functions that choose between these. The
// go:generate lines of that package call it.
package main

import (
	"flag"
	"log"

	. "github.com/mmcloughlin/avo/build"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd/_gen/neon"
)

var families = map[string]func(){
	"gemm":      func() { each(gemm) },
	"transpose": func() { transpose32(); transpose64() },
	"softmax":   func() { each(softmax); each(softmaxGrad) },
	"scores":    func() { each(softCap); each(alibi); each(addBias) },
	"rows": func() {
		each(mulTile)
		each(addTile)
		each(scaleRows)
		each(dots)
		each(dotsWithOne)
		each(finite)
	},
	"half": func() { eachHalf(halfDots); eachHalf(halfCombine) },
	"cache": func() {
		eachCache(cacheDots(4))
		eachCache(cacheDots(1))
		eachCache(cacheCombine(4))
		eachCache(cacheCombine(1))
	},
	"packed": func() { eachCode(dotsPacked); eachCode(widenPacked); scalesOfRows(target{}) },
	"digits": func() {
		for _, c := range byteCodes {
			digitsOf(c)
			digitDots(c)
		}
		digitsInPairs()
		digitDotsInPairs()
	},
	"listed": func() {
		each(listedDots4)
		each(listedDots1)
		each(listedCombine(4))
		each(listedCombine(1))
		each(listedAdd)
	},
	"dropout": func() { philox(target{avx512: true}); philox(target{}); each(keep) },
	"peak":    func() { each(peak) },

	"activation": func() { each(activations); each(swiglu); each(swigluGrad) },
	"norm":       func() { each(sum); each(deviations); each(normalize); each(normalizeDots); each(normalizeGrad) },
	"crossentropy": func() {
		each(greatest)
		each(sumExp)
		each(scaledExp)
		each(exponentials)
		each(probabilities)
		each(logProbabilities)
		each(softmaxRowGrad)
		each(logSoftmaxRowGrad)
	},
	"largest":   func() { each(maxima); each(kth); each(notBelow) },
	"past":      func() { endPast() },
	"rope":      func() { each(rotate); each(rotateNeighbours) },
	"add":       func() { each(add) },
	"mul":       func() { each(mul) },
	"function":  func() { each(quotient); each(squareRoot); each(logarithm); each(absGrad) },
	"pointwise": func() { each(pointwiseAll) },
	"tiles": func() {
		tileProduct()
		tileRowsNative()
		tilePairsNative()
		blockOfPairs()
		for _, half := range []bool{true, false} {
			tileRows(half)
			tilePairs(half)
		}
		for _, t := range []target{{avx512: true}, {}} {
			widenRow(t)
			roundRow(t)
		}
	},
	"optimizer": func() { each(adamw); each(sgd); each(sgdMomentum); each(lion); each(sumSquares) },
}

func main() {
	family := flag.String("family", "", "the kernels to write")
	arm64 := flag.String("neon", "", "the folder to write the assembly for arm64 to, of all families")
	dispatch := flag.String("dispatch", "", "the folder to write the choice between the kernels to, of all families")
	flag.Parse()
	if *arm64 != "" {
		if err := neon.Write(*arm64); err != nil {
			log.Fatal(err)
		}
		return
	}
	if *dispatch != "" {
		for _, emit := range families {
			emit()
		}
		if err := writeDispatch(*dispatch); err != nil {
			log.Fatal(err)
		}
		return
	}
	emit, ok := families[*family]
	if !ok {
		log.Fatalf("unknown family %q", *family)
	}
	emit()
	Generate()
}

// each emits a kernel for every target.
func each(kernel func(target)) {
	for _, t := range []target{{avx512: true}, {avx512: true, double: true}, {}, {double: true}} {
		kernel(t)
	}
}
