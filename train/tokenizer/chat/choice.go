package chat

import (
	"regexp"
	"strings"
)

// Gonja knows an if-else between {{ and }} alone, and Gemma 3's template, for one, has some in brackets. Those are written otherwise
// before it reads them:
//
//	(a if c else b)    →    (((c) and [a] or [b])|first)
//
// which is the same: a list of one value counts as true whatever the value is, and of the two sides only the one is computed that is
// asked for. What does not look like an if-else stays as it is, for gonja to judge.

// code is the inside of a template's statements and expressions, and what is not: comments and raw text.
var code = regexp.MustCompile(`(?s)\{#.*?#\}|\{%[-+]?\s*raw\s*[-+]?%\}.*?\{%[-+]?\s*endraw\s*[-+]?%\}|\{[{%](?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^'"])*?[}%]\}`)

// withChoices is a template whose choices in brackets gonja can read.
func withChoices(source string) string {
	if len(source) > maxSource {
		return source
	}
	return code.ReplaceAllStringFunc(source, func(part string) string {
		if strings.HasPrefix(part, "{#") || raw.MatchString(part) || strings.Count(part, "(")+strings.Count(part, "[")+strings.Count(part, "{") > maxBrackets {
			return part
		}
		text, _ := rewriteChoices(words.FindAllString(part[2:len(part)-2], -1), "")
		return part[:2] + text + part[len(part)-2:]
	})
}

// maxBrackets bounds the work: each level of brackets is copied once more.
const maxBrackets = 256

var (
	raw = regexp.MustCompile(`^\{%[-+]?\s*raw\b`)
	// words cuts code into strings, names, comparisons, white space and single characters.
	words    = regexp.MustCompile(`(?s)'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[\pL_][\pL\pN_]*|[=!<>]=|\s+|.`)
	closings = map[string]string{"(": ")", "[": "]", "{": "}"}
)

// rewriteChoices writes words up to the bracket that closes, or all where there is none, and gives the words that are left.
func rewriteChoices(list []string, closing string) (text string, left []string) {
	var all strings.Builder
	var element []string // what lies between two separators, brackets within it being one word
	end := func() {
		if closing != "" {
			element = choice(element)
		}
		all.WriteString(strings.Join(element, ""))
		element = nil
	}
	for len(list) > 0 {
		word := list[0]
		list = list[1:]
		switch {
		case word == closing:
			end()
			return all.String() + word, list
		case closings[word] != "":
			var inner string
			inner, list = rewriteChoices(list, closings[word])
			element = append(element, word+inner)
		case closing != "" && (word == "," || word == ":" || word == "="):
			end()
			all.WriteString(word)
		default:
			element = append(element, word)
		}
	}
	end()
	return all.String(), nil
}

// choice rewrites an if-else, whose else may be another or missing.
func choice(element []string) []string {
	find := func(word string, from int) int {
		for i := from; i < len(element); i++ {
			if element[i] == word {
				return i
			}
		}
		return len(element)
	}
	at := find("if", 0)
	if at == len(element) || strings.TrimSpace(strings.Join(element[:at], "")) == "" {
		return element
	}
	otherwise := find("else", at)
	value, condition, other := element[:at], element[at+1:otherwise], []string{"''"}
	if otherwise < len(element) {
		other = choice(element[otherwise+1:])
	}
	join := func(list []string) string { return strings.TrimSpace(strings.Join(list, "")) }
	return []string{"(((" + join(condition) + ") and [" + join(value) + "] or [" + join(other) + "])|first)"}
}
