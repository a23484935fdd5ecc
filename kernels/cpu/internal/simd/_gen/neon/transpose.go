package neon

// transpose goes block by block, of 8×8 elements or in float64 4×4: 32 bytes wide in either.
func transpose(k *kernel) {
	side := 32 / k.size()
	rows, src, dst := k.integer("blockRows"), k.integer("src"), k.integer("dst")
	lds, ldd := k.elements("lds"), k.elements("ldd")
	blockCols := k.integer("blockCols")
	k.label("rows")
	cols, block, to := k.gp(), k.gp(), k.gp()
	k.move(cols, blockCols)
	k.move(block, src)
	k.move(to, dst)
	k.label("cols")
	// A vector of columns at a time.
	for part := range 2 {
		from, columns := k.gp(), make([][]vec, k.lanes())
		k.move(from, block)
		for range 2 {
			square := make([]vec, k.lanes())
			for i := range square {
				square[i] = k.load(from, part*bytes)
				k.plus(from, from, lds)
			}
			for i, column := range k.square(square) {
				columns[i] = append(columns[i], column)
			}
		}
		for _, column := range columns {
			for i, v := range column {
				k.store(v, to, i*bytes)
			}
			k.plus(to, to, ldd)
		}
	}
	k.increase(block, 32)
	k.countDown(cols, "cols")
	k.plusShifted(src, src, lds, map[int]int{8: 3, 4: 2}[side])
	k.increase(dst, 32)
	k.countDown(rows, "rows")
}

// square transposes as many vectors as they have lanes.
func (k *kernel) square(x []vec) []vec {
	if k.double {
		return []vec{k.lowerPairs(longs2, x[0], x[1]), k.upperPairs(longs2, x[0], x[1])}
	}
	a, b := k.lowerPairs(words4, x[0], x[1]), k.upperPairs(words4, x[0], x[1])
	c, d := k.lowerPairs(words4, x[2], x[3]), k.upperPairs(words4, x[2], x[3])
	return []vec{k.lowerPairs(longs2, a, c), k.upperPairs(longs2, a, c), k.lowerPairs(longs2, b, d), k.upperPairs(longs2, b, d)}
}
