package tokenizer

import (
	"slices"
	"strings"
)

// hfPrefixes finds which of many tokens a text begins with. One search goes through the text once
// and no further than the tokens do, however long and however many they are.
type hfPrefixes struct {
	tokens []string // in order
	ids    []int32
	first  [257]int32 // tokens that begin with byte b are those from first[b] to first[b+1]
}

func newHFPrefixes(ids map[string]int32) *hfPrefixes {
	p := &hfPrefixes{tokens: make([]string, 0, len(ids))}
	for token := range ids {
		if token != "" {
			p.tokens = append(p.tokens, token)
		}
	}
	slices.Sort(p.tokens)
	p.ids = make([]int32, len(p.tokens))
	for i, token := range p.tokens {
		p.ids[i] = ids[token]
		p.first[int(token[0])+1]++
	}
	for b := range 256 {
		p.first[b+1] += p.first[b]
	}
	return p
}

// hfPrefix is a search: the tokens that begin with as much of the text as was looked at.
type hfPrefix struct {
	of       *hfPrefixes
	s        string
	at       int // bytes looked at
	low, end int32
}

// search looks for the tokens that a text begins with.
func (p *hfPrefixes) search(s string) hfPrefix {
	f := hfPrefix{of: p, s: s}
	if s != "" {
		f.low, f.end = p.first[s[0]], p.first[int(s[0])+1]
	}
	return f
}

// next gives the tokens one after the other, the shortest first: how long each is, and its id.
func (f *hfPrefix) next() (length int, id int32, found bool) {
	tokens := f.of.tokens
	for f.low < f.end && f.at < len(f.s) {
		if f.end-f.low == 1 && f.at > 0 {
			only := tokens[f.low]
			if !strings.HasPrefix(f.s[f.at:], only[f.at:]) {
				break
			}
			f.low++
			return len(only), f.of.ids[f.low-1], true
		}
		if f.at > 0 {
			f.narrow(f.s[f.at])
		}
		f.at++
		if f.low < f.end && len(tokens[f.low]) == f.at {
			f.low++
			return f.at, f.of.ids[f.low-1], true
		}
	}
	return 0, 0, false
}

// narrow keeps the tokens whose byte after those looked at is c. All are longer than that.
func (f *hfPrefix) narrow(c byte) {
	tokens, at := f.of.tokens, f.at
	bound := func(low, end int32, c int) int32 {
		for low < end {
			middle := low + (end-low)/2
			if int(tokens[middle][at]) < c {
				low = middle + 1
			} else {
				end = middle
			}
		}
		return low
	}
	f.low = bound(f.low, f.end, int(c))
	f.end = bound(f.low, f.end, int(c)+1)
}

// longest is the longest token that the text begins with.
func (p *hfPrefixes) longest(s string) (length int, id int32, found bool) {
	for f := p.search(s); ; {
		n, next, more := f.next()
		if !more {
			return length, id, found
		}
		length, id, found = n, next, true
	}
}
