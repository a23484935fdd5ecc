package guard

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// CatchLine makes a panic the error of the function that defers it, in one line that begins with
// where it panicked. What names the work.
func CatchLine(err *error, what string) {
	if reason := recover(); reason != nil {
		*err = fmt.Errorf("%s panics: %v", what, reason)
		if at := Line(); at != "" {
			*err = fmt.Errorf("%s: %w", at, *err)
		}
	}
}

// Line is the innermost line that is running outside of some packages of this module, such as
// "train", and of Go's runtime, which runs while something panics. Their tests count as outside.
func Line(packages ...string) string {
	callers := make([]uintptr, 64)
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers)])
	for {
		frame, more := frames.Next()
		name, ours := strings.CutPrefix(frame.Function, "github.com/stheno-ml/stheno/")
		ours = ours && !strings.HasSuffix(frame.File, "_test.go") && slices.ContainsFunc(append(packages, "internal/guard"),
			func(of string) bool { return strings.HasPrefix(name, of+".") })
		ours = ours || strings.HasPrefix(frame.Function, "runtime.")
		switch {
		case frame.File == "":
			return ""
		case !ours:
			return fmt.Sprintf("%s:%d", filepath.Base(frame.File), frame.Line)
		case !more:
			return ""
		}
	}
}
