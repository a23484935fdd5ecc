package kernels

// ScoresKernels show the scores of attention, which no other kernel keeps.
type ScoresKernels interface {
	// AttentionScores computes the scores of some query rows with all keys, as they enter the
	// softmax: scaled, capped, with slopes and bias, changed by Score, and −∞ where the mask hides
	// the key. rows are row numbers of each batch item; s is (B, Hq, rows, Sk), row-major, of q's
	// wide dtype. It is for looking at, and packed sequences are an error. V, Sinks and Dropout are
	// not looked at.
	AttentionScores(a *Attention, rows []int, s Tensor) error
}
