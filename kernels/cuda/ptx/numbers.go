package ptx

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// This file takes the numbers out of PTX. The compiler numbers registers and labels from the
// beginning of a kernel to its end, so the rounds of an unrolled loop, and the modules of a family,
// differ in little but these numbers. zstd finds long matches in what is left. Most of the numbers
// become short distances, which repeat too. The text that comes out again is the same to the last
// byte.
//
// A module without its numbers is, one behind the other:
//
//	the lengths of what follows, as uvarints
//	the words: the text, with one byte, numbered+k, in place of a register or of a label's number
//	for each kind k a list of its numbers, in the order of the text
//
// The first number of a line mostly says which register the line writes. A number is packed in one
// byte if it is near the last one of its kind that was the first of a line: from far below it to
// far-1 above. Any other is packed as itself: its lowest bits in a byte from itself upwards, the
// others as an uvarint.

// registers are the kinds of registers. Labels are one more kind, of which the number alone is
// taken out.
var registers = [...]string{"%p", "%rs", "%r", "%rd", "%f", "%fd", labels: ""}

const (
	labels   = 6
	kinds    = len(registers)
	numbered = 0x80 // PTX is ASCII
	far      = 96
	itself   = 2 * far
	lowBits  = 6
	highest  = 1<<24 - 1 // larger numbers stay among the words
)

// kindOf tells the kind of a number by the word that it ends.
func kindOf(word string) (kind int, ok bool) {
	if kind := slices.Index(registers[:labels], word); kind >= 0 {
		return kind, true
	}
	function, ok := strings.CutPrefix(word, "$L__BB")
	if ok {
		function, ok = strings.CutSuffix(function, "_")
	}
	return labels, ok && endOfDigits(function, 0) == len(function)
}

// bases are the numbers that distances are counted from.
type bases struct {
	numbers [kinds]int
	begun   bool // the line has had a number
}

func (b *bases) add(kind, number int) {
	if !b.begun {
		b.numbers[kind], b.begun = number, true
	}
}

// withoutNumbers appends the packed form of a text.
func withoutNumbers(packed []byte, text string) ([]byte, error) {
	var parts [1 + kinds][]byte // the words and the lists
	var base bases
	words := &parts[0]
	start := 0 // of the word, where the last % or $ is
	for i := 0; i < len(text); {
		if end := endOfDigits(text, i); end > i {
			kind, ok := kindOf(text[start:i])
			number, err := strconv.Atoi(text[i:end])
			if ok && err == nil && number <= highest && (text[i] != '0' || end == i+1) {
				*words = append((*words)[:len(*words)-len(registers[kind])], byte(numbered+kind))
				list := &parts[1+kind]
				*list = appendNumber(*list, number, base.numbers[kind])
				base.add(kind, number)
			} else {
				*words = append(*words, text[i:end]...)
			}
			i = end
			continue
		}
		switch c := text[i]; {
		case c >= numbered:
			return nil, fmt.Errorf("the text has the byte %#x, and PTX is ASCII", c)
		case c == '%', c == '$':
			start = i
		case c == '\n':
			base.begun = false
		}
		*words = append(*words, text[i])
		i++
	}
	for _, part := range parts {
		packed = binary.AppendUvarint(packed, uint64(len(part)))
	}
	return append(packed, slices.Concat(parts[:]...)...), nil
}

func endOfDigits(text string, i int) int {
	for i < len(text) && '0' <= text[i] && text[i] <= '9' {
		i++
	}
	return i
}

var errDamaged = errors.New("its words and numbers do not go together")

// withNumbers returns the text that withoutNumbers has packed.
func withNumbers(packed []byte) (string, error) {
	parts, err := partsOf(packed)
	if err != nil {
		return "", err
	}
	words, lists := parts[0], parts[1:]
	var text strings.Builder
	text.Grow(len(words) + len(words)/2) // a kernel's text is a tenth to a third longer than its words
	var base bases
	var digits [20]byte
	for _, c := range words {
		if c < numbered {
			base.begun = base.begun && c != '\n'
			text.WriteByte(c)
			continue
		}
		kind := int(c) - numbered
		if kind >= kinds {
			return "", errDamaged
		}
		number, length := readNumber(lists[kind], base.numbers[kind])
		if length == 0 {
			return "", errDamaged
		}
		lists[kind] = lists[kind][length:]
		base.add(kind, number)
		text.WriteString(registers[kind])
		text.Write(strconv.AppendInt(digits[:0], int64(number), 10))
	}
	for _, list := range lists {
		if len(list) > 0 {
			return "", errDamaged
		}
	}
	return text.String(), nil
}

// partsOf returns the words and the lists of a packed module.
func partsOf(packed []byte) ([][]byte, error) {
	lengths, parts := make([]uint64, 1+kinds), make([][]byte, 1+kinds)
	for i := range lengths {
		var n int
		if lengths[i], n = binary.Uvarint(packed); n <= 0 {
			return nil, errDamaged
		}
		packed = packed[n:]
	}
	for i, length := range lengths {
		if length > uint64(len(packed)) {
			return nil, errDamaged
		}
		parts[i], packed = packed[:length], packed[length:]
	}
	if len(packed) > 0 {
		return nil, errDamaged
	}
	return parts, nil
}

func appendNumber(list []byte, number, base int) []byte {
	if distance := number - base; -far <= distance && distance < far {
		return append(list, byte(far+distance))
	}
	list = append(list, byte(itself|number&(1<<lowBits-1)))
	return binary.AppendUvarint(list, uint64(number>>lowBits))
}

// readNumber reads a list's first number. It has no length where the list has none.
func readNumber(list []byte, base int) (number, length int) {
	if len(list) == 0 {
		return 0, 0
	}
	first := int(list[0])
	if first < itself {
		return base + first - far, 1
	}
	high, n := binary.Uvarint(list[1:])
	if n <= 0 || high > highest>>lowBits {
		return 0, 0
	}
	return int(high)<<lowBits | first&(1<<lowBits-1), 1 + n
}
