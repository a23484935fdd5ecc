// Package gguf reads and writes GGUF, the files of llama.cpp and the programs around it: metadata,
// a model's tokenizer among it, and tensors whose numbers may have few bits.
//
//	f, err := gguf.Open("model.gguf")
//	defer f.Close()
//	name := f.Metadata()["general.name"]
//	numbers := make([]float32, 4096)
//	err = f.Elements("output_norm.weight", 0, numbers)
//
// Tensors are read and written as F32, F16, BF16, Q8_0, Q4_0, Q4_K and Q6_K. Those of Q4_1, Q5_0,
// Q5_1, Q2_K, Q3_K, Q5_K, IQ4_NL and IQ4_XS are read. Those of other types are listed. A shape is
// row-major, as everywhere in this module: files list axes the other way round. What models'
// tensors are called and how their rows lie is package pretrained's to know.
//
// Nothing in a file is trusted: sizes are checked against the file before memory is taken for them,
// and a file that is not valid is an error.
package gguf
