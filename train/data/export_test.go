package data

// ParseIDs is the ids of a file with that content.
func ParseIDs(content []byte) (*Tokens, error) {
	m, err := parse(content)
	if err != nil {
		return nil, err
	}
	return m.tokens(), nil
}
