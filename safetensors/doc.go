// Package safetensors reads and writes files of named tensors in the safetensors format, which
// Python's library of that name and most collections of models use.
//
// [Write] streams tensors to a writer, in the order given. [Open] reads a file's header and checks
// all of it; a tensor is read when it is asked for, so that a few tensors of a large file cost no
// more than themselves:
//
//	file, err := safetensors.Open("model.safetensors")
//	if err != nil {
//		return err
//	}
//	defer file.Close()
//	for _, name := range file.Names() {
//		value, err := file.Tensor(name)
//		...
//	}
//
// # Types
//
// F32, F64, I32, I64 and U8 are float32, float64, int32, int64 and uint8. F16 and BF16 are written
// of kernels.Float16 and kernels.BFloat16, and read as float32, which holds each of their values
// exactly. A file may hold tensors of other types, and tensors without elements: they are listed,
// and reading one of them is an error.
//
// # The format
//
// A file is the length of the header in 8 bytes, the header, and the data. All integers are
// little-endian. The header is a JSON object of at most 100 MB, padded with spaces to a multiple of
// 8 bytes; for each tensor it has the type, the shape and where the data, row by row, begins and
// ends. Under the name __metadata__ it may have strings by name. The data of the tensors lies end
// to end, without holes.
//
// A file that breaks one of these rules is refused as a whole, with an error that says which.
// Nothing read from a file is trusted: memory is only taken for what the file is long enough to
// hold.
//
// # Memory
//
// Writing and reading need no more than the tensors themselves, a buffer of 256 KiB and the header.
package safetensors
