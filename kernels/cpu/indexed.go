package cpu

import (
	"cmp"
	"slices"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// TopK finds the largest elements of each row.
func (b *Backend) TopK(x, values, ids kernels.Tensor) (err error) {
	defer catch("top-k", &err)
	if err := checked("top-k", kernels.CheckTopK(x, values, ids)); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	x, values = h.read(x), h.write(values)
	inTypeOf(x, topK[float32], topK[float64])(b, x, values, ids)
	return nil
}

func topK[T kernels.Float](b *Backend, x, values, ids kernels.Tensor) {
	from, to, length, k := rowViewOf[T](x), rowViewOf[T](values), lastAxis(x), lastAxis(values)
	most := 1 + k/8 // what a row costs beside looking at it
	b.eachRow(from.n, length*most, func(i int) {
		x, values := unsafe.Slice(from.at(i), length), unsafe.Slice(to.at(i), k)
		var few [simd.Columns]int
		var largest []int
		if k > len(few) {
			largest = sortedIndices(x)[:k]
		} else {
			largest = appendLargest(few[:0], x, k)
		}
		for j, at := range largest {
			values[j] = x[at]
		}
		setIndices(ids, i, largest)
	})
}

// appendLargest is the indices of the k largest elements, kept in order while the row is looked
// through.
func appendLargest[T kernels.Float](list []int, x []T, k int) []int {
	var columns [simd.Columns]T
	whole := len(x) &^ (simd.Columns - 1)
	if whole < 4*simd.Columns || !simd.Maxima(whole, &x[0], &columns) {
		return appendLargestOfAny(list, x, k)
	}
	most := columns[0]
	for _, v := range x[whole:] {
		if v-v != 0 { // neither is it a number
			return appendLargestOfAny(list, x, k)
		}
		most = max(most, v)
	}
	// The k-th greatest of the maxima of a row's columns is no greater than the k-th greatest
	// element: few elements are not below it.
	var found [8 * simd.Columns]int64
	if k == 1 {
		simd.NotBelow(len(x), &x[0], max(most, simd.Greatest(len(columns), &columns[0])), found[:1])
		return append(list, int(found[0]))
	}
	count := simd.NotBelow(len(x), &x[0], simd.Kth(&columns, k), found[:])
	if count == len(found) { // many are equal, or the great ones lie in few columns
		return appendLargestOfAny(list, x, k)
	}
	for _, id := range found[:count] {
		i := int(id)
		at := len(list)
		if at == k {
			if at--; x[i] <= x[list[at]] {
				continue
			}
		} else {
			list = append(list, i)
		}
		for ; at > 0 && x[i] > x[list[at-1]]; at-- {
			list[at] = list[at-1]
		}
		list[at] = i
	}
	return list
}

// appendLargestOfAny is appendLargest of numbers and others, one after the other.
func appendLargestOfAny[T kernels.Float](list []int, x []T, k int) []int {
	for i, v := range x {
		if len(list) == k && !above(v, x[list[k-1]]) {
			continue
		}
		at := len(list)
		for at > 0 && above(v, x[list[at-1]]) {
			at--
		}
		if len(list) == k {
			list = list[:k-1]
		}
		list = slices.Insert(list, at, i)
	}
	return list
}

// sortedIndices is the indices of a row, that of the largest element first.
func sortedIndices[T kernels.Float](x []T) []int {
	list := make([]int, len(x))
	for i := range list {
		list[i] = i
	}
	slices.SortFunc(list, func(i, j int) int {
		switch {
		case above(x[i], x[j]):
			return -1
		case above(x[j], x[i]):
			return 1
		}
		return cmp.Compare(i, j)
	})
	return list
}

// above reports whether x is larger than y. NaN is larger than any number.
func above[T kernels.Float](x, y T) bool { return x > y || x != x && y == y }

// setIndices writes a row of a tensor of indices. Rows are numbered in row-major order.
func setIndices(t kernels.Tensor, row int, list []int) {
	at, last := 0, len(t.Shape)-1
	for axis := last - 1; axis >= 0; axis-- {
		at += row % t.Shape[axis] * t.Strides[axis]
		row /= t.Shape[axis]
	}
	step := t.Strides[last]
	if t.DType == kernels.I32 {
		to := kernels.Host[int32](t)
		for j, id := range list {
			to[at+j*step] = int32(id)
		}
		return
	}
	to := kernels.Host[int64](t)
	for j, id := range list {
		to[at+j*step] = int64(id)
	}
}

// Gather takes elements of each row by their indices.
func (b *Backend) Gather(x, ids, y kernels.Tensor) (err error) {
	const kernel = "gather"
	defer catch(kernel, &err)
	if err := checked(kernel, kernels.CheckGather(x, ids, y)); err != nil {
		return err
	}
	return b.indexed(kernel, x, ids, y, lastAxis(x), gatherRows[float32], gatherRows[float64])
}

func gatherRows[T kernels.Float](b *Backend, ids []int64, x, y kernels.Tensor) {
	from, to, length, k := rowViewOf[T](x), rowViewOf[T](y), lastAxis(x), lastAxis(y)
	b.eachRow(to.n, k, func(i int) {
		x, y := unsafe.Slice(from.at(i), length), unsafe.Slice(to.at(i), k)
		for j, id := range ids[i*k:][:k] {
			y[j] = x[id]
		}
	})
}

// Scatter adds elements to each row where their indices say.
func (b *Backend) Scatter(x, ids, y kernels.Tensor) (err error) {
	const kernel = "scatter"
	defer catch(kernel, &err)
	if err := checked(kernel, kernels.CheckScatter(x, ids, y)); err != nil {
		return err
	}
	return b.indexed(kernel, x, ids, y, lastAxis(y), scatterRows[float32], scatterRows[float64])
}

func scatterRows[T kernels.Float](b *Backend, ids []int64, x, y kernels.Tensor) {
	from, to, length, k := rowViewOf[T](x), rowViewOf[T](y), lastAxis(y), lastAxis(x)
	b.eachRow(to.n, length+k, func(i int) {
		y := unsafe.Slice(to.at(i), length)
		clear(y)
		if k == 0 {
			return
		}
		x := unsafe.Slice(from.at(i), k)
		for j, id := range ids[i*k:][:k] {
			y[id] += x[j]
		}
	})
}

// indexed runs a kernel whose indices, of which there is a list a row, are below bound.
func (b *Backend) indexed(
	kernel string, x, ids, y kernels.Tensor, bound int, single, double func(b *Backend, ids []int64, x, y kernels.Tensor),
) error {
	list, memory, err := indicesOf(kernel, ids, bound)
	if err != nil {
		return err
	}
	defer memory.release()
	h := halves{b: b}
	defer h.round()
	x, y = h.read(x), h.write(y)
	inTypeOf(x, single, double)(b, list, x, y)
	return nil
}

// indicesOf checks indices. Their memory is the caller's to release.
func indicesOf(kernel string, ids kernels.Tensor, limit int) (list []int64, memory *workspace, err error) {
	memory = newWorkspace(bytesFor[int64](ids.Elements()))
	list = take[int64](memory, ids.Elements())
	if err := readIndices(list, kernel, "ids", ids, indexRange{limit: limit}); err != nil {
		memory.release()
		return nil, nil, err
	}
	return list, memory, nil
}
