package neon

import (
	"fmt"
	"math/bits"
)

// The registers that a function of Go's may use as it likes: not R18, which is the system's, nor
// R27 to R30, which are the assembler's, the goroutine's, the frame's and the caller's.
var free = map[class][]int{
	general: {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 19, 20, 21, 22, 23, 24, 25, 26},
	vector:  {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31},
}

// allocate gives each register a number that no other has while both are alive. There is no
// spilling: what does not fit is an error.
func (k *kernel) allocate() (number func(int) int, err error) {
	live, err := k.liveness()
	if err != nil {
		return nil, err
	}
	conflicts := make([]set, len(k.registers))
	for r := range conflicts {
		conflicts[r] = newSet(len(k.registers))
	}
	for i, in := range k.code {
		for _, w := range in.writes {
			live[i].each(func(r int) { conflicts[w].add(r); conflicts[r].add(w) })
			for _, other := range in.writes {
				conflicts[w].add(other)
			}
		}
	}
	// Registers are numbered in the order of their first appearance.
	numbers := make([]int, len(k.registers))
	for r := range numbers {
		numbers[r] = -1
	}
	for i, in := range k.code {
		for _, r := range append(append([]int{}, in.writes...), in.reads...) {
			if numbers[r] >= 0 {
				continue
			}
			taken := map[int]bool{}
			conflicts[r].each(func(other int) {
				if other != r && k.registers[other] == k.registers[r] && numbers[other] >= 0 {
					taken[numbers[other]] = true
				}
			})
			for _, n := range free[k.registers[r]] {
				if !taken[n] {
					numbers[r] = n
					break
				}
			}
			if numbers[r] < 0 {
				return nil, fmt.Errorf("instruction %d needs more registers of class %d than there are", i, k.registers[r])
			}
		}
	}
	return func(r int) int { return numbers[r] }, nil
}

// liveness says which registers hold something that is still read, behind each instruction.
func (k *kernel) liveness() ([]set, error) {
	labels := map[string]int{}
	for i, in := range k.code {
		if in.label != "" {
			if _, twice := labels[in.label]; twice {
				return nil, fmt.Errorf("two labels %q", in.label)
			}
			labels[in.label] = i
		}
	}
	before, behind := make([]set, len(k.code)), make([]set, len(k.code))
	for i := range k.code {
		before[i], behind[i] = newSet(len(k.registers)), newSet(len(k.registers))
	}
	for changed := true; changed; {
		changed = false
		for i := len(k.code) - 1; i >= 0; i-- {
			in := k.code[i]
			if !in.ends && i+1 < len(k.code) {
				behind[i].addAll(before[i+1])
			}
			if in.jump != "" {
				to, ok := labels[in.jump]
				if !ok {
					return nil, fmt.Errorf("no label %q", in.jump)
				}
				behind[i].addAll(before[to])
			}
			now := behind[i].clone()
			for _, r := range in.writes {
				now.remove(r)
			}
			for _, r := range in.reads {
				now.add(r)
			}
			changed = before[i].addAll(now) || changed
		}
	}
	for r, c := range k.registers {
		if before[0].has(r) {
			return nil, fmt.Errorf("register %d of class %d may be read before it is written", r, c)
		}
	}
	return behind, nil
}

// set is a set of registers.
type set []uint64

func newSet(n int) set       { return make(set, n/64+1) }
func (s set) has(r int) bool { return s[r/64]>>(r%64)&1 != 0 }
func (s set) add(r int)      { s[r/64] |= 1 << (r % 64) }
func (s set) remove(r int)   { s[r/64] &^= 1 << (r % 64) }
func (s set) clone() set     { return append(set(nil), s...) }

// addAll reports whether that changed the set.
func (s set) addAll(other set) bool {
	changed := false
	for i, w := range other {
		changed = changed || w&^s[i] != 0
		s[i] |= w
	}
	return changed
}

func (s set) each(visit func(r int)) {
	for i, w := range s {
		for ; w != 0; w &= w - 1 {
			visit(64*i + bits.TrailingZeros64(w))
		}
	}
}
