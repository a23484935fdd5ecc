// Package ring computes attention over a sequence that several processes share, the ranks of a
// [kernels.Ranks], each with a device of its own: for sequences longer than one device holds. It is
// made of a device's own attention kernels.
//
// # Who has which rows
//
// A sequence is cut into two pieces a rank. Rank r of n holds piece r and, behind it, piece 2n − 1
// − r: an early part and a late one, so that with a causal mask all ranks have as much to compute.
// [Held] says where they lie. Queries, keys, values, outputs and gradients are shared out alike, in
// one tensor a rank.
//
// # How
//
// In step s = 1, ..., n − 1 rank r gets keys and values of rank r − s, and sends its own to rank r
// + s. They are on their way while the kernels work on those that came before. Of the pairs of
// pieces, those that the mask hides are left out, and with them what need not travel; neighbours
// are computed together. What a row sees in the keys of each rank is merged by its logsumexp, in
// the type of sums. Backward, the gradients of keys and values are computed where their queries
// are, and travel back in that type, to be added up in the order of the steps: the same bits in
// each run where the kernels' are.
//
// Dropout drops what it drops of the whole sequence, however many ranks share it, and slopes
// (ALiBi) are by distances there: kernels are told where a block lies in the whole. Those of a GPU
// are compiled for it when they are first met, as for a score of one's own.
//
// # What cannot be had
//
// Queries and keys are of one sequence, with one cumulative length for both where sequences are
// packed. A bias, a score, a mask of one's own and lengths of keys are errors.
package ring
