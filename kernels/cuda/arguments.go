//go:build gpu

package cuda

// rows is a tensor with a contiguous last axis; strides are in elements.
type rows[A readable | writable] struct {
	data             A
	batch, head, row int64
}

// arguments is what an attention kernel is told about its problem, field by field
// AttentionArguments in src/arguments.cuh, which says what each means.
type arguments struct {
	q, k, v    rows[readable]
	o          rows[writable]
	dO         rows[readable]
	dQ, dK, dV rows[writable]

	lse             writable // backward kernels only read it
	delta           readable
	dQSum, counters address

	bias                                     readable
	dBias                                    writable
	sinks, slopes, qLens, kvLens, keyLengths readable

	biasSequence, biasHead, biasRow    int64
	dBiasSequence, dBiasHead, dBiasRow int64
	biasColumn, dBiasColumn            int32

	sequences, heads, keyHeads int32
	sq, sk                     int32
	longestQ, longestK         int32
	d, dv                      int32

	scale, softCap     float32
	scaleInCap         float32
	causal             int32
	left, right, shift int32
	dropThreshold      uint32
	dropKey0, dropKey1 uint32
	dropStep           uint32
	keepScale          float32
	biasElement        element
	dBiasSums          int32
	deterministic      int32
	biasMapped         int32
}
