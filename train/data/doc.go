// Package data makes batches for training: of tokens, of data sets, and of what a program makes
// itself.
//
// A [Batch] is arrays by name, and [Batches] are as many of them as are asked for. A [Func] is
// Batches of one's own, and may give them several shapes; [Examples] are those of a data set in
// memory, such as images and labels.
//
// [Tokens] are ids in a file that is mapped into memory ([Open]) or in memory ([FromInts],
// [FromBytes]). The batches that are cut from them have tokens and targets: [Random] begins each
// row anywhere, as nanoGPT does, [Sequential] goes from the first token to the last and [Shuffled]
// visits the same windows in an order of its own in each epoch.
//
//	tokens, err := data.Open("train.bin")
//	train, validation, err := tokens.Split(0.9)
//	batches, err := data.Random(train, 12, 64, seed)
//	ahead, err := data.Prefetch(batches, 0, 2)
//	for n := range 2000 {
//		b, err := ahead.Batch(n) // tokens and targets are (12, 64), targets one token later
//	}
//
// Text that is more than memory holds becomes files of tokens by package prepare. [OpenShards]
// opens many of them and [Stream] reads them as they are needed, in a shuffled order, as plain
// windows or as documents that see only themselves:
//
//	shards, err := data.OpenShards(paths...)
//	batches, err := data.Stream(shards, data.StreamOptions{Rows: 12, Length: 1024, Seed: seed, Packed: true, Separator: 50256})
//
// # A batch is a function of its number
//
// A batch depends on the data, the seed and its number n alone, not on what was asked for before. A
// run that is resumed at step n asks for batch n and goes on as if it had never stopped; there is
// no state to save. For the same reason a [Prefetcher] changes when a batch is made and never what
// is in it.
//
// # Files
//
// Two kinds are read and written: uint16 ids without a header, as nanoGPT's prepare scripts write,
// and llm.c's .bin files, with a header and uint16 or uint32 ids. All are little-endian. [Open]
// tells them apart by llm.c's magic numbers; as two ids of a raw file they would be 55432 or 55713
// and then 308, which GPT-2's vocabulary does not reach.
//
// On Unix a file is mapped, not read: opening is immediate whatever its size, and pages that were
// read can be dropped by the system again. The file must keep its size while it is open, for the
// system ends a program that reads a mapped page past a file's end. On other systems the file is
// read into memory as a whole.
//
// # Lifetime
//
// All Tokens made of a file share its mapping, and [Tokens.Close] ends them all. Close them last:
// after each Prefetcher over them.
package data
