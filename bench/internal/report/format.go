package report

import (
	"fmt"
	"math"
)

// number writes three digits.
func number(x float64) string {
	digits := 2 - int(math.Floor(math.Log10(math.Abs(x))))
	if x == 0 {
		digits = 0
	}
	return fmt.Sprintf("%.*f", min(max(digits, 0), 3), x)
}

// duration writes seconds in the unit that suits them.
func duration(seconds float64) string {
	for _, u := range []struct {
		name string
		size float64
	}{{"s", 1}, {"ms", 1e-3}, {"µs", 1e-6}} {
		if seconds >= u.size {
			return number(seconds/u.size) + " " + u.name
		}
	}
	return number(seconds*1e9) + " ns"
}

// size writes bytes in the unit that suits them.
func size(bytes float64) string {
	for _, u := range []struct {
		name string
		size float64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if bytes >= u.size {
			return number(bytes/u.size) + " " + u.name
		}
	}
	return number(bytes) + " B"
}

// rate writes work a second.
func rate(perSecond float64, unit string) string {
	switch {
	case unit == "token":
		return number(perSecond) + " tokens/s"
	case perSecond >= 1e12:
		return number(perSecond/1e12) + " T" + unit + "/s"
	default:
		return number(perSecond/1e9) + " G" + unit + "/s"
	}
}

// percent writes a share, and nothing for none.
func percent(share float64) string {
	if math.IsNaN(share) {
		return ""
	}
	return fmt.Sprintf("%.0f%%", 100*share)
}
