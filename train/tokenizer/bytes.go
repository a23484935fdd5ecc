package tokenizer

// Bytes is a [Tokenizer] whose ids are the bytes of a text. The zero value is ready to use.
type Bytes struct{}

// Encode is the bytes of the text; the error is always nil.
func (Bytes) Encode(text string) ([]int, error) {
	ids := make([]int, len(text))
	for i := range len(text) {
		ids[i] = int(text[i])
	}
	return ids, nil
}

// Decode is the text with these bytes.
func (b Bytes) Decode(ids []int) (string, error) {
	text := make([]byte, len(ids))
	for i, id := range ids {
		if err := checkID("Bytes", id, b.Size()); err != nil {
			return "", err
		}
		text[i] = byte(id)
	}
	return string(text), nil
}

// Bytes is the byte with that id.
func (b Bytes) Bytes(id int) ([]byte, error) {
	if err := checkID("Bytes", id, b.Size()); err != nil {
		return nil, err
	}
	return []byte{byte(id)}, nil
}

// Size is 256.
func (Bytes) Size() int { return 256 }
