package data

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sort"
	"sync"

	"github.com/stheno-ml/stheno/internal/plainfile"
	"github.com/stheno-ml/stheno/nn"
)

// Shards are the tokens of several files, which may be more than memory holds: a part is read when
// a batch needs it, and nothing is kept. Package prepare writes such files. Many goroutines may use
// them at once.
type Shards struct {
	files []shard

	mutex sync.Mutex // guards what follows
	open  []openShard
	ended bool
}

// shard is a file of tokens.
type shard struct {
	path   string
	from   int64 // byte of the first id
	width  int
	tokens int
}

// openShard is one of the files that were read last, the latest at the end.
type openShard struct {
	index int
	file  *os.File
}

// mostOpen is how many files are open at once.
const mostOpen = 16

// OpenShards looks at files of tokens, whose formats it finds out, each its own. Their order is
// that of the paths.
func OpenShards(paths ...string) (*Shards, error) {
	if len(paths) == 0 {
		return nil, errors.New("OpenShards: there are no paths, it needs at least one")
	}
	s := &Shards{}
	for _, path := range paths {
		one, err := lookAt(path)
		if err != nil {
			return nil, fmt.Errorf("OpenShards: %w", err)
		}
		s.files = append(s.files, one)
	}
	return s, nil
}

func lookAt(path string) (shard, error) {
	file, size, err := plainfile.Open(path)
	if err != nil {
		return shard{}, err
	}
	defer file.Close()
	if size == 0 {
		return shard{}, fmt.Errorf("%s is empty, it needs to hold tokens", path)
	}
	start := make([]byte, min(size, startBytes))
	if _, err := file.ReadAt(start, 0); err != nil {
		return shard{}, fmt.Errorf("%s: %w", path, err)
	}
	from, width, err := layout(start, size)
	if err != nil {
		return shard{}, fmt.Errorf("%s %w", path, err)
	}
	tokens := (size - int64(from)) / int64(width)
	if tokens > math.MaxInt/2 {
		return shard{}, fmt.Errorf("%s has %d tokens, more than this system can count", path, tokens)
	}
	return shard{path, int64(from), width, int(tokens)}, nil
}

// Len is the number of tokens in all files.
func (s *Shards) Len() int {
	total := 0
	for _, one := range s.files {
		total += one.tokens
	}
	return total
}

// Close closes the files. Batches of them are errors from then on. Closing again does nothing.
func (s *Shards) Close() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	var err error
	for _, o := range s.open {
		err = errors.Join(err, o.file.Close())
	}
	s.open, s.ended = nil, true
	return err
}

// read fills ids with the tokens of a file that begin at from.
func (s *Shards) read(ids []int, index, from int) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	file, err := s.file(index)
	if err != nil {
		return err
	}
	one := s.files[index]
	content := make([]byte, one.width*len(ids))
	if _, err := file.ReadAt(content, one.from+int64(from)*int64(one.width)); err != nil {
		return fmt.Errorf("%s, which had %d tokens: reading %d from token %d on: %w", one.path, one.tokens, len(ids), from, err)
	}
	decode(ids, content, one.width)
	return nil
}

// file opens a file, unless it is open. It closes the one that was not read for longest, where too
// many are.
func (s *Shards) file(index int) (*os.File, error) {
	if s.ended {
		return nil, errClosed
	}
	at := slices.IndexFunc(s.open, func(o openShard) bool { return o.index == index })
	if at >= 0 {
		o := s.open[at]
		s.open = append(slices.Delete(s.open, at, at+1), o)
		return o.file, nil
	}
	if len(s.open) == mostOpen {
		if err := s.open[0].file.Close(); err != nil {
			return nil, err
		}
		s.open = slices.Delete(s.open, 0, 1)
	}
	file, _, err := plainfile.Open(s.files[index].path)
	if err != nil {
		return nil, err
	}
	s.open = append(s.open, openShard{index, file})
	return file, nil
}

// StreamOptions say how [Stream] makes batches.
type StreamOptions struct {
	Rows, Length int    // of a batch
	Seed         uint64 // of the order
	// Shuffle is how many windows, of Length tokens each, are shuffled together; 0 means 16384, and
	// 1 that all come in the order of the files. More mix better, and fewer are read from places
	// that lie closer together.
	Shuffle int
	// Packed says that a document sees only itself. Each ends with the token Separator.
	Packed    bool
	Separator int
}

const (
	defaultShuffle = 16384
	runWindows     = 64 // windows that follow one another in a file and are shuffled together
)

// StreamBatches are [Batches] of shards, each window of which comes once an epoch.
type StreamBatches struct {
	shards *Shards
	o      StreamOptions
	ends   []int // where the windows of each file end, counted over all
}

// Stream makes batches of windows of Length tokens from shards. Windows lie end to end in each
// file, and what is left behind the last of them is not visited, as with [Sequential]. In each
// epoch runs of 64 windows are put in an order of their own, over all files, and then the windows
// of as many runs as Shuffle says are mixed. The order follows from the seed and the epoch, and
// every place in it is computed by itself: a training that is resumed at batch n, with as many
// ranks as one likes, needs no state but n.
//
// The batches have tokens and targets of (Rows, Length), or with Packed the arrays of [Pack], in
// which windows lie end to end, and documents end behind a separator. A window begins and ends
// within a document as it happens. As many ends are stated as the batch has documents, rounded up
// to a power of two, so that batches have few shapes.
func Stream(shards *Shards, o StreamOptions) (*StreamBatches, error) {
	b := &StreamBatches{shards: shards, o: o}
	if err := b.check(); err != nil {
		return nil, fmt.Errorf("Stream: %w", err)
	}
	return b, nil
}

func (b *StreamBatches) check() error {
	switch {
	case b.shards == nil:
		return errors.New("shards is nil, it needs to be shards")
	case b.o.Rows < 1 || b.o.Length < 1 || b.o.Rows > math.MaxInt32/b.o.Length:
		return fmt.Errorf("rows is %d and length is %d, each needs to be at least 1 and their product an int32", b.o.Rows, b.o.Length)
	case b.o.Shuffle < 0 || b.o.Shuffle > math.MaxInt32:
		return fmt.Errorf("shuffle is %d, it needs to be at least 1 and an int32, or 0 for %d", b.o.Shuffle, defaultShuffle)
	case b.o.Packed && b.o.Separator < 0:
		return fmt.Errorf("separator is %d, it needs to be a token", b.o.Separator)
	}
	if b.o.Shuffle == 0 {
		b.o.Shuffle = defaultShuffle
	}
	if b.o.Shuffle > 1 {
		b.o.Shuffle = (b.o.Shuffle + runWindows - 1) / runWindows * runWindows
	}
	total := 0
	for _, one := range b.shards.files {
		total += max(0, one.tokens-1) / b.o.Length
		b.ends = append(b.ends, total)
	}
	if total == 0 {
		return fmt.Errorf("no file has %d tokens, which a window of %d and the target after it need", b.o.Length+1, b.o.Length)
	}
	return nil
}

// Count is the number of windows, which are the rows of one epoch.
func (b *StreamBatches) Count() int {
	if len(b.ends) == 0 {
		return 0
	}
	return b.ends[len(b.ends)-1]
}

// window is the one that comes at a place of an epoch.
func (b *StreamBatches) window(epoch, place int) int {
	size := b.o.Shuffle
	if size == 1 {
		return place
	}
	// First the windows between the ends of a mix change places, then runs do. Those behind the
	// last whole run stay at the end.
	mix := place / size
	first := mix * size
	place = first + permuteIn(mixStream, b.o.Seed, uint64(epoch)<<32|uint64(mix), min(size, b.Count()-first), place-first)
	runs := b.Count() / runWindows
	if run := place / runWindows; run < runs {
		return permute(b.o.Seed, epoch, runs, run)*runWindows + place%runWindows
	}
	return place
}

// Batch returns batch n.
func (b *StreamBatches) Batch(n int) (Batch, error) {
	if len(b.ends) == 0 {
		return nil, errors.New("Stream: it has no shards, it needs to be made by Stream")
	}
	if err := checkNumber(n, b.o.Rows); err != nil {
		return nil, fmt.Errorf("Stream: %w", err)
	}
	total := b.o.Rows * b.o.Length
	tokens, targets, ids := make([]int, total), make([]int, total), make([]int, b.o.Length+1)
	for row := range b.o.Rows {
		i := n*b.o.Rows + row
		window := b.window(i/b.Count(), i%b.Count())
		file := sort.SearchInts(b.ends, window+1)
		if file > 0 {
			window -= b.ends[file-1]
		}
		if err := b.shards.read(ids, file, window*b.o.Length); err != nil {
			return nil, fmt.Errorf("Stream: %w", err)
		}
		copy(tokens[row*b.o.Length:], ids[:b.o.Length])
		copy(targets[row*b.o.Length:], ids[1:])
	}
	if !b.o.Packed {
		return Batch{"tokens": Ints(tokens, b.o.Rows, b.o.Length), "targets": Ints(targets, b.o.Rows, b.o.Length)}, nil
	}
	return b.pack(tokens, targets), nil
}

// pack finds the documents in rows that lie end to end.
func (b *StreamBatches) pack(tokens, targets []int) Batch {
	positions, ends := make([]int, len(tokens)), []int{0}
	for i, token := range tokens {
		positions[i] = i - ends[len(ends)-1]
		if token == b.o.Separator {
			targets[i] = nn.IgnoreTarget // the next document is no part of this one
		}
		if token == b.o.Separator || (i+1)%b.o.Length == 0 {
			ends = append(ends, i+1)
		}
	}
	pieces := 1
	for pieces < len(ends)-1 {
		pieces *= 2
	}
	for len(ends) < pieces+1 {
		ends = append(ends, len(tokens)) // pieces without tokens
	}
	return Batch{
		"tokens": Ints(tokens, len(tokens)), "targets": Ints(targets, len(targets)), "positions": Ints(positions, len(positions)),
		"ends": Ints(ends, len(ends)),
	}
}
