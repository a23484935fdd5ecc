package tokenizer

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// hfPrecompiled is SentencePiece's table of what characters become. A double array leads from the
// bytes of a text to a place in a list of texts that each end with a zero.
type hfPrecompiled struct {
	units []uint32
	texts string
}

func readPrecompiled(encoded string) (*hfPrecompiled, error) {
	table, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, fmt.Errorf("precompiled_charsmap: %w", err)
	}
	if len(table) < 4 {
		return nil, errors.New("precompiled_charsmap is too short")
	}
	size := int(binary.LittleEndian.Uint32(table))
	if table = table[4:]; size > len(table) || size%4 != 0 {
		return nil, fmt.Errorf("precompiled_charsmap has an array of %d bytes, it needs to be a multiple of 4 and at most %d", size, len(table))
	}
	p := &hfPrecompiled{units: make([]uint32, size/4), texts: string(table[size:])}
	for i := range p.units {
		p.units[i] = binary.LittleEndian.Uint32(table[4*i:])
	}
	return p, nil
}

// becomes is what the shortest beginning of a text that is in the table becomes.
func (p *hfPrecompiled) becomes(s string) (string, bool) {
	offset := func(unit uint32) uint32 { return unit >> 10 << (unit & (1 << 9) >> 6) }
	if len(p.units) == 0 {
		return "", false
	}
	at := offset(p.units[0])
	for i := range len(s) {
		if s[i] == 0 {
			break
		}
		if at ^= uint32(s[i]); at >= uint32(len(p.units)) {
			break
		}
		unit := p.units[at]
		if unit&(1<<31|0xFF) != uint32(s[i]) {
			break
		}
		at ^= offset(unit)
		if unit>>8&1 == 0 {
			continue
		}
		if at >= uint32(len(p.units)) {
			break
		}
		place := int(p.units[at] &^ (1 << 31))
		if place > len(p.texts) {
			break
		}
		text, _, _ := strings.Cut(p.texts[place:], "\x00")
		return text, true
	}
	return "", false
}

// normalize replaces what the table has, a letter with its marks as a whole where both are short.
func (p *hfPrecompiled) normalize(t hfText) (hfText, error) {
	list := make([]hfFormed, 0, len(t.s))
	changed := false
	replace := func(from, to int, with string) {
		changed = true
		old, added := utf8.RuneCountInString(t.s[from:to]), 0
		for _, r := range with {
			more := 0
			if added++; added > old {
				more = 1
			}
			list = append(list, hfFormed{r, more})
		}
		if added < old && len(list) > 0 {
			list[len(list)-1].more -= old - added
		}
	}
	for from := 0; from < len(t.s); {
		to := from + clusterLength(t.s[from:])
		const short = 6
		if to-from < short {
			if with, found := p.becomes(t.s[from:to]); found {
				replace(from, to, with)
				from = to
				continue
			}
		}
		for from < to {
			r, n := utf8.DecodeRuneInString(t.s[from:])
			if with, found := p.becomes(t.s[from : from+n]); found {
				replace(from, from+n, with)
			} else {
				list = append(list, hfFormed{r, 0})
			}
			from += n
		}
	}
	if !changed {
		return t, nil
	}
	b := t.builder()
	b.transform(list, 0, len(t.s))
	return b.text(), nil
}
