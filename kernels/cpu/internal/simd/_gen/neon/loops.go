package neon

// tile is a parameter that points to rows. Its stride is in a parameter of its own, and here in
// bytes.
type tile struct{ pointer, stride gp }

func (k *kernel) tile(pointer, stride string) tile {
	return tile{k.integer(pointer), k.elements(stride)}
}

// line is a parameter that points to a single row.
func (k *kernel) line(pointer string) tile { return tile{pointer: k.integer(pointer)} }

// access is how the body of a loop reaches its part of a row: a vector, or behind the last whole
// one an element.
type access struct {
	*kernel
	i    gp // bytes
	part width
}

func (a access) load(x tile) vec         { return a.loadAt(a.part, x.pointer, a.i) }
func (a access) store(v vec, x tile)     { a.storeAt(a.part, v, x.pointer, a.i) }
func (a access) partial() bool           { return a.part != whole16 }
func (k *kernel) vectorAt(i gp) access   { return access{k, i, whole16} }
func (k *kernel) elementAt(i gp) access  { return access{k, i, k.one()} }
func (k *kernel) lowestLane() (mask vec) { return k.vectorOf(1<<(8*k.size()-1)*2-1, 0) }

// only puts zeros into the lanes behind the row's end.
func (a access) only(x vec) vec {
	if !a.partial() {
		return x
	}
	return a.and(x, a.lowestLane())
}

// otherwise puts a value into the lanes behind the row's end.
func (a access) otherwise(value, x vec) vec {
	if !a.partial() {
		return x
	}
	return a.pick(a.lowestLane(), x, value)
}

// eachVector emits the loop over a row of n elements, n being a parameter of at least 1: over its
// whole vectors and then over the elements that are left. Everything that the body needs from
// outside must have been made before.
func (k *kernel) eachVector(body func(a access)) {
	end, whole, i := k.elements("n"), k.gp(), k.gp()
	k.multiplesOf(whole, end, bytes)
	k.zero(i)
	k.each("vector", i, whole, bytes, func() { body(k.vectorAt(i)) })
	k.each("element", i, end, k.size(), func() { body(k.elementAt(i)) })
}

// sweep emits the loops over rows and over the vectors of a row. The parameters rows and n, both at
// least 1, say how many.
type sweep struct {
	*kernel
	tiles []tile
	whole bool           // n may be taken as a multiple of lanes, rounded up
	start func()         // before each row; may be nil
	body  func(a access) // for each vector, or element behind the last whole one
	end   func()         // after each row; may be nil

	lastPart *width // what is left of a row is one part of this width, not elements; may be nil
}

func (s sweep) emit() {
	rows, end, whole := s.integer("rows"), s.elements("n"), s.gp()
	if s.whole {
		s.increase(end, bytes-1)
	}
	s.multiplesOf(whole, end, bytes)
	s.label("row")
	if s.start != nil {
		s.start()
	}
	i := s.gp()
	s.zero(i)
	s.each("vector", i, whole, bytes, func() { s.body(s.vectorAt(i)) })
	if !s.whole {
		part := s.one()
		if s.lastPart != nil {
			part = *s.lastPart
		}
		s.each("element", i, end, part.bytes, func() { s.body(access{s.kernel, i, part}) })
	}
	if s.end != nil {
		s.end()
	}
	for _, x := range s.tiles {
		s.plus(x.pointer, x.pointer, x.stride)
	}
	s.countDown(rows, "row")
}
