package tokenizer

import "fmt"

// Tokenizer turns text into ids from 0 to Size()-1, and back.
type Tokenizer interface {
	// Encode is the ids of a text.
	Encode(text string) ([]int, error)
	// Decode is the text of ids: the bytes of each, one after another, whether or not they are
	// valid UTF-8.
	Decode(ids []int) (string, error)
	// Bytes is the text of one id, which the caller may change.
	Bytes(id int) ([]byte, error)
	// Size is the number of ids.
	Size() int
}

// checkID is for the methods of the tokenizer with that name.
func checkID(name string, id, size int) error {
	if id < 0 || id >= size {
		return fmt.Errorf("%s: id is %d, it needs to be from 0 to %d", name, id, size-1)
	}
	return nil
}
