package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// usualColumns is how wide text is at most, and where it is not for a terminal.
const usualColumns = 80

// Columns is how many columns a line may have in what a program prints: those of the terminal, if
// there is one.
func Columns() int {
	if columns := terminal(); columns > 0 {
		return columns
	}
	return usualColumns
}

// terminal is how many columns it has, 0 where there is none.
func terminal() int {
	for _, file := range []*os.File{os.Stdout, os.Stderr} {
		if columns, _, err := term.GetSize(int(file.Fd())); err == nil && columns > 0 {
			return columns
		}
	}
	return 0
}

// Wrap breaks lines between words, so that they have as many columns at most, or as many as are
// easy to read. A longer word goes on.
func Wrap(text string, columns int) string {
	var out strings.Builder
	for n, line := range strings.Split(text, "\n") {
		if n > 0 {
			out.WriteByte('\n')
		}
		at := 0
		for i, word := range strings.Fields(line) {
			n := utf8.RuneCountInString(word)
			switch {
			case i > 0 && at+1+n > min(columns, usualColumns):
				out.WriteByte('\n')
				at = 0
			case i > 0:
				out.WriteByte(' ')
				at++
			}
			out.WriteString(word)
			at += n
		}
	}
	return out.String()
}

// List is lines of a name and what it stands for, side by side where the columns are enough for
// all, and otherwise one below the other. A command that is longer goes on in the next line, as a
// shell reads it.
func List(lines [][2]string, columns int) string {
	name, all := 0, 0
	for _, line := range lines {
		name = max(name, utf8.RuneCountInString(line[0]))
	}
	for _, line := range lines {
		all = max(all, name+2+utf8.RuneCountInString(line[1]))
	}
	var out strings.Builder
	for _, line := range lines {
		if all > columns {
			fmt.Fprintf(&out, "%s:\n  %s\n", line[0], continued(line[1], columns-2))
		} else {
			fmt.Fprintf(&out, "%-*s  %s\n", name, line[0], line[1])
		}
	}
	return out.String()
}

// uses are lines of a command, and behind three blanks or more what it does: below the command
// where the columns are not enough for all. There may be no columns, 0, but a file.
func uses(lines []string, columns int) string {
	var out strings.Builder
	narrow := columns > 0 && slices.ContainsFunc(lines, func(line string) bool { return 2+utf8.RuneCountInString(line) > columns })
	for _, line := range lines {
		command, remark, _ := strings.Cut(line, "   ")
		if !narrow {
			fmt.Fprintf(&out, "  %s\n", line)
			continue
		}
		fmt.Fprintf(&out, "  %s\n", continued(command, columns-2))
		if remark = strings.TrimSpace(remark); remark != "" {
			fmt.Fprintf(&out, "      %s\n", remark)
		}
	}
	return out.String()
}

// continued cuts a command before its flags.
func continued(command string, columns int) string {
	const behind = " \\"
	parts := strings.Split(command, " -")
	out, at := parts[0], utf8.RuneCountInString(parts[0])
	for i, part := range parts[1:] {
		n := utf8.RuneCountInString(part) + 2
		room := columns
		if i+2 < len(parts) {
			room -= len(behind)
		}
		if at+n > room {
			out, at = out+behind+"\n   ", 2
		}
		out, at = out+" -"+part, at+n
	}
	return out
}

// Word is a text as a shell takes it for one word of a command.
func Word(text string) string {
	special := func(c rune) bool {
		return !strings.ContainsRune("_-+=:,./@%", c) && !unicode.IsLetter(c) && !unicode.IsDigit(c)
	}
	if text != "" && strings.IndexFunc(text, special) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// fitted wraps the lines of help where a terminal is narrower. A line's indentation is that of what
// follows it.
func fitted(help string, columns int) string {
	var out strings.Builder
	for line := range strings.SplitAfterSeq(help, "\n") {
		text := strings.TrimLeft(line, " \t")
		indent := line[:len(line)-len(text)]
		cells := len(strings.ReplaceAll(indent, "    \t", "\t")) + 7*strings.Count(indent, "\t")
		if columns == 0 || cells+utf8.RuneCountInString(text) <= columns+1 || strings.Contains(text, "   ") {
			out.WriteString(line)
			continue
		}
		wrapped := Wrap(strings.TrimRight(text, "\n"), max(columns-cells, 20))
		out.WriteString(indent + strings.ReplaceAll(wrapped, "\n", "\n"+indent) + "\n")
	}
	return out.String()
}
