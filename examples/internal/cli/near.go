package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Missing adds to the error of a path that leads to nothing the one that was probably meant: a name
// in the same folder that is nearly the same. Other errors stay as they are.
func Missing(path string, err error) error {
	slashed := filepath.ToSlash(path)
	switch {
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case strings.Contains(slashed, "http:/") || strings.Contains(slashed, "https:/"):
		return fmt.Errorf("%w: it is an address, what is there needs to be downloaded to a file first", err)
	case strings.HasPrefix(slashed, "~/") || strings.Contains(slashed, "/~/"):
		return fmt.Errorf("%w: ~ stands for the home folder only where it is not quoted", err)
	}
	return fmt.Errorf("%w%s", err, Meant(path))
}

// Meant asks whether a name in the same folder was meant by a path that leads to nothing, and says
// nothing where none is near.
func Meant(path string) string {
	if other := near(path); other != "" {
		return fmt.Sprintf(": did you mean %s?", other)
	}
	return ""
}

// maxNames is how many names of a folder are looked at.
const maxNames = 10000

// near is the path beside another whose name is nearest, empty if none is near.
func near(path string) string {
	folder, name := filepath.Split(path)
	there, err := os.Open(filepath.Dir(path))
	if err != nil {
		return ""
	}
	defer there.Close()
	names, err := there.Readdirnames(maxNames)
	if err != nil {
		return ""
	}
	slices.Sort(names)
	best, least := "", 2+len(name)/4
	for _, other := range names {
		if d := distance(name, other); d < least {
			best, least = other, d
		}
	}
	if best == "" {
		return ""
	}
	return folder + best
}
