package cpu

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
)

// Adafactor updates weights and the means of their gradients' squares. Threads share the tensors;
// sums are float64.
func (b *Backend) Adafactor(o kernels.Adafactor, w, g, r, c, v []kernels.Tensor) (err error) {
	const kernel = "adafactor"
	defer catch(kernel, &err)
	if err := checked(kernel, o.Check(w, g, r, c, v)); err != nil {
		return err
	}
	if steps, made := decide(&o.Update); !made {
		return b.skip(o.Update, g)
	} else if steps > 0 {
		o.Step = steps
	}
	if isFloat32(w) {
		adafactor[float32](b, o, 0x1p-23, w, g, r, c, v)
	} else {
		adafactor[float64](b, o, 0x1p-52, w, g, r, c, v)
	}
	return nil
}

func adafactor[T kernels.Float](b *Backend, o kernels.Adafactor, epsilon T, w, g, r, c, v []kernels.Tensor) {
	elements := 0
	for _, t := range w {
		elements += t.Elements()
	}
	const divided = 8 // as many elements of other updates are computed in the time of one
	b.each(len(w), divided*elementFLOPs*float64(elements), func(i int) {
		if w[i].Elements() == 0 {
			return
		}
		weights, gradients := kernels.Host[T](w[i]), kernels.Host[T](g[i])
		directions := gradients // which are cleared in the end
		if !o.ClearGradients {
			memory := newWorkspace(bytesFor[T](len(weights)))
			defer memory.release()
			directions = take[T](memory, len(weights))
		}
		for j, x := range gradients {
			directions[j] = T(o.EffectiveScale()) * x
		}
		forget := T(math.Pow(float64(o.Step), o.Beta2Decay))
		if v[i].IsSet() {
			adafactorVector(directions, kernels.Host[T](v[i]), forget, epsilon)
		} else {
			count, rows, columns := o.Matrices(w[i].Shape)
			r, c := kernels.Host[T](r[i]), kernels.Host[T](c[i])
			for m := range count {
				adafactorMatrix(directions[m*rows*columns:][:rows*columns], r[m*rows:][:rows], c[m*columns:][:columns], forget, epsilon)
			}
		}
		adafactorMove(o, weights, directions)
		if o.ClearGradients {
			clear(gradients)
		}
	})
}

// adafactorVector makes gradients directions: each is divided by the root of its square's mean.
func adafactorVector[T kernels.Float](g, v []T, forget, epsilon T) {
	for i, x := range g {
		v[i] += forget * (x*x - v[i])
		g[i] = x / T(math.Sqrt(float64(max(v[i], epsilon*epsilon))))
	}
}

// adafactorMatrix does so with the means of the squares that rows and columns say.
func adafactorMatrix[T kernels.Float](g, r, c []T, forget, epsilon T) {
	memory := newWorkspace(bytesFor[float64](len(c)))
	defer memory.release()
	sums := take[float64](memory, len(c))
	clear(sums)
	total := 0.0
	for i := range r {
		sum := 0.0
		for j, x := range g[i*len(c):][:len(c)] {
			square := float64(x) * float64(x)
			sum, sums[j] = sum+square, sums[j]+square
		}
		r[i] += forget * (T(sum/float64(len(c))) - r[i])
		total += float64(r[i])
	}
	for j := range c {
		c[j] += forget * (T(sums[j]/float64(len(r))) - c[j])
	}
	mean := max(T(total/float64(len(r))), epsilon)
	for i := range r {
		row := g[i*len(c):][:len(c)]
		for j := range row {
			row[j] /= T(math.Sqrt(float64(max(r[i]*c[j]/mean, epsilon*epsilon))))
		}
	}
}

// adafactorMove changes the weights along their directions.
func adafactorMove[T kernels.Float](o kernels.Adafactor, w, directions []T) {
	n, ofWeights, ofDirections := float64(len(w)), 0.0, 0.0
	for i, u := range directions {
		ofWeights, ofDirections = ofWeights+float64(w[i])*float64(w[i]), ofDirections+float64(u)*float64(u)
	}
	size := max(o.Epsilon, math.Sqrt(ofWeights/n)) * min(o.LearningRate, 1/math.Sqrt(float64(o.Step)))
	rate, decay := T(size/max(1, math.Sqrt(ofDirections/n)/o.Clip)), T(1-o.LearningRate*o.WeightDecay)
	for i, u := range directions {
		w[i] = w[i]*decay - rate*u
	}
}
