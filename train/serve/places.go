package serve

import "slices"

// place is one of the decoder's texts.
type place struct {
	*request        // nil while it is free
	used     uint64 // larger if it was taken later
}

func (p place) isTaken() bool { return p.request != nil }

// admit frees the places of those who left, and gives free ones to those who wait.
func (s *Scheduler) admit() error {
	for i, p := range s.places {
		if p.isTaken() && p.gone.Load() {
			s.free(i, &s.stats.Left)
		}
	}
	s.mu.Lock()
	waiting := slices.Clone(s.waiting)
	s.mu.Unlock()
	for _, r := range waiting {
		to, found := s.oldest()
		if !found {
			return nil
		}
		from, shared, soon := s.likest(r.left)
		if soon {
			continue // another request reads the same prompt just now: this one goes on from there
		}
		if !s.isNext(r) {
			continue
		}
		if window := s.c.Decoder.Window(from); !s.places[from].isTaken() && 2*shared >= len(window) {
			to = from // little is lost
		}
		if err := s.begin(r, to, from, shared); err != nil {
			return err
		}
	}
	return nil
}

// isNext takes a request out of those who wait, unless it has left.
func (s *Scheduler) isNext(r *request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.Index(s.waiting, r)
	if at < 0 {
		return false
	}
	s.waiting = slices.Delete(s.waiting, at, at+1)
	s.stats.Running++
	return true
}

// begin gives a request a place, with the tokens that it shares with another.
func (s *Scheduler) begin(r *request, to, from, shared int) error {
	newest := uint64(0)
	for _, p := range s.places {
		newest = max(newest, p.used)
	}
	s.places[to] = place{r, newest + 1}
	s.mu.Lock()
	s.stats.PromptTokens += uint64(len(r.left) - shared)
	s.stats.SharedTokens += uint64(shared)
	s.mu.Unlock()
	r.left = r.left[shared:]
	if shared == 0 || to == from {
		return s.c.Decoder.Truncate(to, shared)
	}
	return s.c.Decoder.Fork(to, from, shared)
}

// oldest is the free place that was taken the longest time ago.
func (s *Scheduler) oldest() (place int, found bool) {
	for i, p := range s.places {
		if !p.isTaken() && (!found || p.used < s.places[place].used) {
			place, found = i, true
		}
	}
	return place, found
}

// likest finds the place whose tokens begin most as a prompt does, and how many they have in
// common, at most all but one: the last needs to be read to know what follows. Soon reports that a
// place which is reading its prompt will have many more.
func (s *Scheduler) likest(prompt []int) (place, shared int, soon bool) {
	const many = 16
	most := 0
	for i, p := range s.places {
		window := s.c.Decoder.Window(i)
		if n := common(window, prompt); n > shared {
			place, shared = i, n
		}
		if p.isTaken() && len(p.left) > 1 {
			most = max(most, common(slices.Concat(window, p.left), prompt))
		}
	}
	return place, shared, most >= shared+many
}

// common is how many tokens a prompt has in common with others, at most all but one.
func common(tokens, prompt []int) int {
	n := 0
	for n < min(len(tokens), len(prompt)-1) && tokens[n] == prompt[n] {
		n++
	}
	return n
}
