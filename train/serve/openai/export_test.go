package openai

import "time"

// Hurry makes clients that send or take nothing have so little time, until the function is called
// that it returns.
func Hurry(body, answer time.Duration) (restore func()) {
	before, beforeStall := bodyTime, stall
	bodyTime, stall = body, answer
	return func() { bodyTime, stall = before, beforeStall }
}
