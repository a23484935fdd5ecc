package report

import (
	"fmt"
	"strings"
)

// Fill rewrites the parts of a page that are made from reports. A part is what lies between two
// lines,
//
//	<!-- bench:begin attention cpu -->
//	<!-- bench:end attention cpu -->
//
// of which the first word names a part and the second a report, which load gets by that name. The
// parts are "machine", "ceilings", "grid SECTION" (a table of rates, cases across), "beside SECTION
// PEER" (the same of ours alone, with the ratios to a peer's; of "SECTION/D=64" those alone whose
// series has "D=64"), "list SECTION" (a table of times, cases down) and "figure NAME"; folder is
// where the page finds a report's figures. Everything else stays as it is.
func Fill(page string, load func(name string) (*Report, error), folder func(name string) string) (string, error) {
	const begin, end, close = "<!-- bench:begin ", "<!-- bench:end ", " -->"
	var out []string
	lines := strings.Split(page, "\n")
	for i := 0; i < len(lines); i++ {
		out = append(out, lines[i])
		what, ok := strings.CutPrefix(strings.TrimSpace(lines[i]), begin)
		if !ok {
			continue
		}
		what = strings.TrimSuffix(what, close)
		words := strings.Fields(what)
		if len(words) < 2 {
			return "", fmt.Errorf("line %d: the marker says %q, it needs a part and the name of a report", i+1, what)
		}
		name := words[len(words)-1]
		r, err := load(name)
		if err != nil {
			return "", fmt.Errorf("line %d: %w", i+1, err)
		}
		text, err := r.part(words[:len(words)-1], folder(name))
		if err != nil {
			return "", fmt.Errorf("line %d: report %s: %w", i+1, name, err)
		}
		last := i + 1
		for last < len(lines) && strings.TrimSpace(lines[last]) != end+what+close {
			last++
		}
		if last == len(lines) {
			return "", fmt.Errorf("line %d: the part %q has no line %q", i+1, what, end+what+close)
		}
		out = append(out, "", strings.TrimSpace(text), "", lines[last])
		i = last
	}
	return strings.Join(out, "\n"), nil
}

// part makes the text of a part.
func (r *Report) part(words []string, folder string) (string, error) {
	switch {
	case len(words) == 1 && words[0] == "machine":
		text := r.Header()
		if noise := r.Noise(); len(noise) > 0 {
			text += "\nThe run was noisy: " + strings.Join(noise, "; ") + ".\n"
		}
		return text, nil
	case len(words) == 1 && words[0] == "ceilings":
		return r.CeilingTable(), nil
	case len(words) == 2 && (words[0] == "grid" || words[0] == "list"):
		if len(r.of(words[1])) == 0 {
			return "", fmt.Errorf("it has no section %q", words[1])
		}
		if words[0] == "grid" {
			return r.Grid(words[1]), nil
		}
		return r.List(words[1]), nil
	case len(words) > 2 && words[0] == "beside":
		peer := strings.Join(words[2:], " ")
		section, series, _ := strings.Cut(words[1], "/")
		table := r.BesidePeer(section, series, peer)
		if table == "" {
			return "", fmt.Errorf("its section %q has nothing of %q", words[1], peer)
		}
		return table, nil
	case len(words) == 2 && words[0] == "figure":
		for _, f := range r.Figures() {
			if f.Name == words[1] {
				return fmt.Sprintf("![%s](%s/%s)", f.Title, folder, f.File()), nil
			}
		}
		return "", fmt.Errorf("it has no figure %q", words[1])
	}
	return "", fmt.Errorf("there is no part %q: it needs to be machine, ceilings, grid SECTION, beside SECTION PEER, list SECTION or figure NAME", strings.Join(words, " "))
}
