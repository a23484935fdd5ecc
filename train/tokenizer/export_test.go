package tokenizer

// Pieces are the pieces of a text.
func Pieces(text string) []string {
	pieces := []string{}
	for text != "" {
		n := firstPiece(text)
		pieces = append(pieces, text[:n])
		text = text[n:]
	}
	return pieces
}
