// Package cli is what the flags of the examples share: help in groups, and a word about what was
// probably meant.
package cli

import (
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Group is flags that belong together, for help.
type Group struct {
	Title string
	Flags []string
}

// Help writes what a program does, examples of its use, and its flags in groups. Flags that no
// group has come last.
func Help(screen io.Writer, flags *flag.FlagSet, about string, examples []string, groups []Group) {
	w := new(strings.Builder)
	defer func() { io.WriteString(screen, fitted(w.String(), terminal())) }()
	fmt.Fprintf(w, "%s\n", about)
	w.WriteString(uses(examples, terminal()))
	named := map[string]bool{}
	for _, g := range groups {
		fmt.Fprintf(w, "\n%s\n", g.Title)
		part := flag.NewFlagSet("", flag.ContinueOnError)
		part.SetOutput(w)
		for _, name := range g.Flags {
			if f := flags.Lookup(name); f != nil {
				part.Var(f.Value, f.Name, f.Usage)
				part.Lookup(name).DefValue = f.DefValue
				named[name] = true
			}
		}
		part.PrintDefaults()
	}
	rest := flag.NewFlagSet("", flag.ContinueOnError)
	rest.SetOutput(w)
	count := 0
	flags.VisitAll(func(f *flag.Flag) {
		if !named[f.Name] {
			rest.Var(f.Value, f.Name, f.Usage)
			rest.Lookup(f.Name).DefValue = f.DefValue
			count++
		}
	})
	if count > 0 {
		fmt.Fprintln(w, "\nmore")
		rest.PrintDefaults()
	}
}

// Parse parses flags as [Flags] does, where nothing but flags is allowed. The error of an argument
// that is none says which flag takes files, if the argument is one.
func Parse(flags *flag.FlagSet, args []string, others map[string]string, file string) error {
	if err := Flags(flags, args, others); err != nil || flags.NArg() == 0 {
		return err
	}
	if err := detached(flags, args); err != nil {
		return err
	}
	return argument(flags, flags.Arg(0), file)
}

// detached is the error of a value that a flag takes only behind an equals sign, nil if the first
// argument is none.
func detached(flags *flag.FlagSet, args []string) error {
	before := len(args) - flags.NArg() - 1
	if before < 0 || !strings.HasPrefix(args[before], "-") {
		return nil
	}
	f := flags.Lookup(strings.TrimLeft(args[before], "-"))
	if f == nil || !takesNone(f) {
		return nil
	}
	if err := f.Value.Set(flags.Arg(0)); err != nil {
		return fmt.Errorf("%q stands behind -%s, whose value needs to follow an equals sign: %w", flags.Arg(0), f.Name, err)
	}
	return fmt.Errorf("%q stands behind -%s, whose value needs to follow an equals sign: -%s=%s", flags.Arg(0), f.Name, f.Name, flags.Arg(0))
}

// takesNone reports whether a flag may stand without a value and is no plain yes or no.
func takesNone(f *flag.Flag) bool {
	optional, ok := f.Value.(interface{ IsBoolFlag() bool })
	if !ok || !optional.IsBoolFlag() {
		return false
	}
	getter, ok := f.Value.(flag.Getter)
	if !ok {
		return true
	}
	_, plain := getter.Get().(bool)
	return !plain
}

// Flags parses flags. The error of a flag that does not exist names the one that was probably
// meant: others are names that other programs have, with ours.
func Flags(flags *flag.FlagSet, args []string, others map[string]string) error {
	err := flags.Parse(args)
	if err == nil || err == flag.ErrHelp {
		return err
	}
	if name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -"); unknown {
		if meant := Nearest(name, flags, others); meant != "" {
			return fmt.Errorf("there is no flag -%s: did you mean -%s? (-help lists the flags)", name, meant)
		}
		return fmt.Errorf("there is no flag -%s (-help lists the flags)", name)
	}
	if name, lacks := strings.CutPrefix(err.Error(), "flag needs an argument: "); lacks {
		return fmt.Errorf("%s needs a value behind it (-help lists the flags)", name)
	}
	return fmt.Errorf("%s (-help lists the flags)", plain(flags, err))
}

var invalid = regexp.MustCompile(`^invalid (?:boolean )?value "(.*)" for (?:flag )?-([^: ]+): (.*)$`)

// plain is the error of a flag's value, in words that say what it needs to be.
func plain(flags *flag.FlagSet, err error) string {
	parts := invalid.FindStringSubmatch(err.Error())
	if parts == nil {
		return err.Error()
	}
	value, name, why := parts[1], parts[2], parts[3]
	if why == "parse error" || why == "value out of range" {
		switch flags.Lookup(name).Value.(flag.Getter).Get().(type) {
		case bool:
			why = "it needs to be true or false"
		case int, int64:
			limit := ""
			if why == "value out of range" {
				limit = fmt.Sprintf(" from %d to %d", math.MinInt, math.MaxInt)
			}
			why = "it needs to be a whole number" + limit
		case uint, uint64:
			why = "it needs to be a whole number, not negative"
		case float64:
			why = "it needs to be a number"
		case time.Duration:
			why = "it needs to be a time with its unit, such as 30s or 10m"
		}
	}
	return fmt.Sprintf("invalid value %q for flag -%s: %s", value, name, why)
}

// Behind is the error of arguments behind the flags of which one is a flag again, which package
// flag takes for an argument.
func Behind(flags *flag.FlagSet) error {
	for _, arg := range flags.Args() {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if strings.HasPrefix(arg, "-") && flags.Lookup(name) != nil {
			return fmt.Errorf("-%s stands behind %q, flags need to stand before all else", name, flags.Arg(0))
		}
	}
	return nil
}

func argument(flags *flag.FlagSet, arg, file string) error {
	meant := ""
	if _, err := os.Stat(filepath.Join(arg, "config.json")); err == nil && flags.Lookup("model") != nil {
		meant = "-model " + arg
	} else if _, err := os.Stat(filepath.Join(arg, "checkpoints")); err == nil && flags.Lookup("out") != nil {
		meant = "-out " + arg
	} else if _, err := os.Stat(arg); file != "" && (err == nil || strings.Contains(arg, ".")) {
		meant = "-" + file + " " + arg
	} else if name := Nearest(strings.TrimLeft(arg, "-–—"), flags, nil); name != "" {
		meant = "-" + name
	}
	if meant == "" {
		return fmt.Errorf("argument %q is no flag (-help lists them)", arg)
	}
	return fmt.Errorf("argument %q is no flag: did you mean %s? (-help lists the flags)", arg, meant)
}

// Nearest is the flag that a name was probably meant for, empty if none is near.
func Nearest(name string, flags *flag.FlagSet, others map[string]string) string {
	name, _, _ = strings.Cut(name, "=")
	plain := func(s string) string {
		return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(s))
	}
	for other, ours := range others {
		if plain(other) == plain(name) && flags.Lookup(ours) != nil {
			return ours
		}
	}
	best, least := "", 1+len(plain(name))/3
	flags.VisitAll(func(f *flag.Flag) {
		if d := distance(plain(name), plain(f.Name)); d < least || d == least && best == "" {
			best, least = f.Name, d
		}
	})
	return best
}

// distance is how many letters have to be put in, taken out or changed to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			above := row[j+1]
			changed := corner
			if a[i] != b[j] {
				changed++
			}
			row[j+1] = slices.Min([]int{above + 1, row[j] + 1, changed})
			corner = above
		}
	}
	return row[len(b)]
}
