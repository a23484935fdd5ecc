package checkpoint

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
)

// kind tells the checkpoints of the usual row from the best ones.
type kind string

const (
	regular kind = "step"
	best    kind = "best"
)

// name is what the folder of a checkpoint is called: kind and step, and for one that replaces
// another of the same step a generation. Folders are never overwritten: at every moment there is
// the old one, the new one or both.
type name struct {
	kind       kind
	step       int
	generation int // from 1
}

func (n name) String() string {
	if n.generation == 1 {
		return fmt.Sprintf("%s-%08d", n.kind, n.step)
	}
	return fmt.Sprintf("%s-%08d.%d", n.kind, n.step, n.generation)
}

var namePattern = regexp.MustCompile(`^(step|best)-(\d{8,})(?:\.(\d+))?$`)

// parseName reads a name that String has written, and no other.
func parseName(s string) (name, bool) {
	parts := namePattern.FindStringSubmatch(s)
	if parts == nil {
		return name{}, false
	}
	n := name{kind: kind(parts[1]), generation: 1}
	var err error
	if n.step, err = strconv.Atoi(parts[2]); err != nil {
		return name{}, false
	}
	if parts[3] != "" {
		if n.generation, err = strconv.Atoi(parts[3]); err != nil {
			return name{}, false
		}
	}
	return n, n.String() == s
}

// newestFirst sorts names by step and then generation.
func newestFirst(a, b name) int {
	return cmp.Or(cmp.Compare(b.step, a.step), cmp.Compare(b.generation, a.generation))
}

// Checkpoints are written and deleted under names that nothing reads, which workName gives.
const (
	writing  = "writing"
	deleting = "deleting"
)

// workName is a name that no other folder has, for what is about to be done to one.
func workName(what, folder string) string {
	return fmt.Sprintf(".%s-%s-%d", what, folder, rand.Uint64())
}

// probeName stands for a checkpoint in the name of a folder that Open makes to see whether it can.
const probeName = "probe"

var workPattern = regexp.MustCompile(`^\.(writing|deleting)-(probe|(step|best)-\d{8,}(\.\d+)?)-\d+$`)
