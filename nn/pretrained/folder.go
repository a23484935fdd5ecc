package pretrained

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/internal/memory"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/safetensors"
	"gorgonia.org/tensor"
)

const (
	configFile  = "config.json"
	weightsFile = "model.safetensors"
	indexFile   = "model.safetensors.index.json"

	maxConfig = 16 << 20 // bytes
	maxIndex  = 64 << 20
)

// readSmallFile reads a file of the folder that has at most so many bytes.
func readSmallFile(folder, name string, most int64) ([]byte, error) {
	path, err := regularFile(folder, name)
	if err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(content)) > most {
		return nil, fmt.Errorf("%s has more than %d bytes", name, most)
	}
	return content, nil
}

// regularFile is the path of a file in the folder itself: not in another, and not a pipe on which
// opening would wait. It may be a link, as in the cache of huggingface_hub all are.
func regularFile(folder, name string) (string, error) {
	if name != filepath.Base(name) || !filepath.IsLocal(name) || strings.ContainsAny(name, `/\`) {
		return "", fmt.Errorf("%q is not the name of a file in the folder", name)
	}
	path := filepath.Join(folder, name)
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is no regular file", name)
	}
	return path, nil
}

// weights are the open files of a folder, by the names of the tensors in them.
type weights struct {
	files  []*safetensors.File
	holder map[string]stored
}

func (w *weights) close() {
	for _, f := range w.files {
		f.Close()
	}
}

// openWeights opens a file of tensors; an empty name stands for model.safetensors, or the files
// that its index lists.
func openWeights(folder, name string) (*weights, error) {
	w := &weights{holder: map[string]stored{}}
	var err error
	if name == "" {
		err = w.open(folder)
	} else {
		err = w.openOnly(folder, name)
	}
	if err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// open takes the one file where there are both, as transformers does: the index is an older model's
// then.
func (w *weights) open(folder string) error {
	if _, err := os.Stat(filepath.Join(folder, weightsFile)); err == nil {
		return w.openOnly(folder, weightsFile)
	}
	if _, err := os.Stat(filepath.Join(folder, indexFile)); err != nil {
		return fmt.Errorf("there is neither %s nor %s; files of PyTorch's own format are not read, save_pretrained makes safetensors of them",
			weightsFile, indexFile)
	}
	return w.openShards(folder)
}

// openOnly opens the file that has all tensors.
func (w *weights) openOnly(folder, name string) error {
	file, err := w.openFile(folder, name)
	if err != nil {
		return err
	}
	for _, name := range file.Names() {
		if w.holder[name], err = newPlain(file, name); err != nil {
			return err
		}
	}
	return nil
}

func (w *weights) openFile(folder, name string) (*safetensors.File, error) {
	path, err := regularFile(folder, name)
	if err != nil {
		return nil, err
	}
	file, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	w.files = append(w.files, file)
	return file, nil
}

// openShards opens the files that the index lists, and believes it only where the files agree.
func (w *weights) openShards(folder string) error {
	text, err := readSmallFile(folder, indexFile, maxIndex)
	if err != nil {
		return err
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(text, &index); err != nil {
		return fmt.Errorf("%s: %w", indexFile, err)
	}
	shards := map[string]*safetensors.File{}
	for _, name := range slices.Sorted(maps.Keys(index.WeightMap)) {
		shard := index.WeightMap[name]
		file, opened := shards[shard]
		if !opened {
			if file, err = w.openFile(folder, shard); err != nil {
				return fmt.Errorf("%s: tensor %q: %w", indexFile, name, err)
			}
			shards[shard] = file
		}
		if w.holder[name], err = newPlain(file, name); err != nil {
			return fmt.Errorf("%s says that tensor %q is in %s: %w", indexFile, name, shard, err)
		}
	}
	return nil
}

// source is a tensor of a file that is to be read.
type source struct {
	*link
	stored
	name  string
	dtype kernels.DType
	bytes int64
}

// find is a tensor, which may lack its prefix or, if it is a norm's, have the name
// that TensorFlow gave it.
func (w *weights) find(name, prefix string) (string, stored) {
	for _, name := range []string{name, strings.TrimPrefix(name, prefix), prefix + name} {
		for _, name := range []string{name, oldNames.Replace(name)} {
			if found := w.holder[name]; found != nil {
				return name, found
			}
		}
	}
	return name, nil
}

var oldNames = strings.NewReplacer("LayerNorm.weight", "LayerNorm.gamma", "LayerNorm.bias", "LayerNorm.beta")

// rename gives tensors whose names begin in one way another beginning, and leaves out those for
// which that is empty.
func (w *weights) rename(beginnings []renaming) {
	for _, name := range slices.Collect(maps.Keys(w.holder)) {
		for _, r := range beginnings {
			rest, found := strings.CutPrefix(name, r.from)
			if !found {
				continue
			}
			if r.to != "" {
				w.holder[r.to+rest] = w.holder[name]
			}
			delete(w.holder, name)
			break
		}
	}
}

// behead takes away the head of a model of language whose files have none, such as one that gives
// vectors alone.
func (a *architecture) behead(w *weights) {
	if a.headOrNot != nil {
		a.headOrNot(w.holder["lm_head.weight"] != nil)
	}
	d := a.decoder
	if d == nil || d.Classes != nil {
		return
	}
	has := func(part string) bool {
		_, found := w.find(d.names.head+part, a.prefix)
		return found != nil
	}
	if d.TiedHead && (!d.HeadBias || has(".bias")) || !d.TiedHead && has(".weight") {
		return
	}
	a.links = slices.DeleteFunc(a.links, func(l link) bool { return strings.HasPrefix(l.theirs, d.names.head+".") })
	d.NoHead, d.HeadBias, d.TiedHead = true, false, false
}

// sources finds the tensor of each link, checks their types and shapes, and makes sure that no
// tensor is left over.
func (w *weights) sources(a *architecture) ([]source, error) {
	var list []source
	used := map[string]bool{}
	for i := range a.links {
		l := &a.links[i]
		name, found := w.find(l.theirs, a.prefix)
		if l.copied {
			used[name] = true
			continue
		}
		if found == nil {
			return nil, fmt.Errorf("tensor %q is missing", l.theirs)
		}
		info := found.describe()
		if !slices.Equal(info.shape, l.shape) {
			return nil, fmt.Errorf("tensor %q has shape %v, the config asks for %v", name, info.shape, l.shape)
		}
		if info.dtype == kernels.NoDType {
			return nil, fmt.Errorf("tensor %q is %s, it needs to be F32, F16 or BF16", name, info.called)
		}
		if isConv(found, l) {
			return nil, fmt.Errorf("tensor %q is the %s of a Conv1D, which is not supported", name, info.called)
		}
		used[name] = true
		list = append(list, source{l, found, name, info.dtype, info.bytes})
	}
	for _, name := range slices.Sorted(maps.Keys(w.holder)) {
		known := func(end string) bool { return strings.HasSuffix(name, end) }
		begins := func(with string) bool { return strings.HasPrefix(name, with) }
		if used[name] || slices.ContainsFunc(a.unused, known) || slices.ContainsFunc(a.further, begins) {
			continue
		}
		at := slices.IndexFunc(a.repeats, func(r repeat) bool { return known(r.name) })
		if at < 0 {
			return nil, fmt.Errorf("tensor %q is none that the config asks for", name)
		}
		of, _ := w.find(a.repeats[at].of, a.prefix)
		if same, err := w.equal(name, of); err != nil || !same {
			return nil, cmp.Or(err, fmt.Errorf(
				"tensor %q differs from %q, and the config's tie_word_embeddings says that the two are one", name, of))
		}
	}
	return list, nil
}

// most is the type of most numbers.
func most(list []source) (dtype tensor.Dtype) {
	counts, best := map[kernels.DType]int{}, 0
	for _, s := range list {
		counts[s.dtype] += s.elements()
	}
	for d, of := range map[kernels.DType]tensor.Dtype{kernels.F32: tensor.Float32, kernels.F16: ops.Float16, kernels.BF16: ops.BFloat16} {
		if counts[d] > best {
			dtype, best = of, counts[d]
		}
	}
	return dtype
}

// equal reports whether two tensors have the same shape and elements.
func (w *weights) equal(names ...string) (bool, error) {
	var infos [2]storedInfo
	for i, name := range names {
		if w.holder[name] == nil {
			return false, nil
		}
		if infos[i] = w.holder[name].describe(); infos[i].dtype == kernels.NoDType {
			return false, fmt.Errorf("tensor %q is %s, it needs to be F32, F16 or BF16", name, infos[i].called)
		}
	}
	shape := infos[0].shape
	if !slices.Equal(shape, infos[1].shape) || len(shape) == 0 {
		return false, nil
	}
	length := kernels.Tensor{Shape: shape[1:]}.Elements()
	rows := max(1, 1<<16/max(1, length)) // at a time
	for at := 0; at < shape[0]; at += rows {
		count := min(rows, shape[0]-at) * length
		var values [2][]float32
		for i, name := range names {
			read := make([]byte, count*infos[i].dtype.Size())
			if err := w.holder[name].read(at*length, read); err != nil {
				return false, err
			}
			values[i] = make([]float32, count)
			from := kernels.Contiguous(unsafe.Pointer(unsafe.SliceData(read)), infos[i].dtype, count)
			if err := oneThread.Copy(kernels.Of(values[i], count), from); err != nil {
				return false, err
			}
		}
		if !slices.Equal(values[0], values[1]) {
			return false, nil
		}
	}
	return true, nil
}

// keeping is the types in which the weights of linear layers and of embeddings are kept, none for
// float32.
type keeping struct{ linear, embedding tensor.Dtype }

// parameters are parameters without values that keep weights so.
func (k keeping) parameters() (p *nn.Parameters, err error) {
	p = nn.NewParameters(0)
	if isGiven(k.linear) {
		err = p.KeepWeights(k.linear)
	}
	if isGiven(k.embedding) && err == nil {
		err = p.KeepEmbeddings(k.embedding)
	}
	return p, err
}

func isGiven(d tensor.Dtype) bool { return d != tensor.Dtype{} && d != tensor.Float32 }

// of is the type in which the parameters of a tensor are read. Packed weights are read otherwise.
func (k keeping) of(l *link) tensor.Dtype {
	kept := tensor.Float32
	switch {
	case l.linear && isGiven(k.linear), l.experts && isGiven(k.linear) && !ops.IsPacked(k.linear):
		kept = k.linear
	case l.embedding && isGiven(k.embedding):
		kept = k.embedding
	case l.embedding && isGiven(k.linear):
		kept = k.linear
	}
	if l.embedding && ops.IsPacked(kept) {
		return tensor.Float32 // its layer packs it
	}
	return kept
}

// readFolder reads the parameters of a folder's files.
func readFolder(folder string, a *architecture, kept keeping, progress func(done, total int64)) (*nn.Parameters, error) {
	w, err := openWeights(folder, a.weights)
	if err != nil {
		return nil, err
	}
	defer w.close()
	if a.quantised != nil {
		if err := a.quantised(w); err != nil {
			return nil, err
		}
	}
	return w.parameters(a, kept, progress)
}

// parameters reads the tensors, several at a time, but for those that are packed, one after the
// other.
func (w *weights) parameters(a *architecture, kept keeping, progress func(done, total int64)) (*nn.Parameters, error) {
	parameters, err := kept.parameters()
	if err != nil {
		return nil, err
	}
	w.rename(a.renamed)
	a.behead(w)
	all, err := w.sources(a)
	if err != nil {
		return nil, err
	}
	a.stored = most(all)
	r := reader{values: map[string]*tensor.Dense{}, memory: map[string]kernels.Tensor{}, progress: progress}
	var parts []part
	dtypes := map[string]tensor.Dtype{}
	var list, packed []source
	for _, s := range all {
		r.total += s.bytes
		dtype := kept.of(s.link)
		if ops.IsPacked(dtype) {
			packed = append(packed, s)
			continue
		}
		list, parts = append(list, s), append(parts, s.parts...)
		for _, p := range s.parts {
			dtypes[p.ours] = dtype
		}
	}
	// The small ones take what is left of memory that was used before, which Go clears: a large one
	// that only begins there would be cleared as a whole, by one thread.
	slices.SortStableFunc(parts, func(a, b part) int { return tensor.Shape(a.shape).TotalSize() - tensor.Shape(b.shape).TotalSize() })
	for _, p := range parts {
		if r.values[p.ours] == nil {
			v := tensor.New(tensor.Of(dtypes[p.ours]), tensor.WithShape(p.shape...), tensor.WithEngine(ops.Engine()))
			if r.memory[p.ours], err = ops.TensorOf(v); err != nil {
				return nil, err
			}
			r.values[p.ours] = v
		}
	}
	if err := r.read(list); err != nil {
		return nil, err
	}
	if err := r.readPacked(packed, kept.linear); err != nil {
		return nil, err
	}
	for i := range a.links {
		for _, p := range a.links[i].parts {
			if parameters.Value(p.ours) != nil {
				continue
			}
			if err := parameters.Set(p.ours, r.values[p.ours]); err != nil {
				return nil, err
			}
		}
	}
	return parameters, nil
}

// reader reads tensors into values, by the parameters' names.
type reader struct {
	values map[string]*tensor.Dense
	memory map[string]kernels.Tensor // of the values

	mu          sync.Mutex // of what follows
	done, total int64
	progress    func(done, total int64)
	err         error
}

// piece is some rows of a tensor, which are outputs of one of its parts from a place on.
type piece struct {
	*source
	part       *part
	row, at, n int
}

// pieceElements is how many elements of a tensor are read at a time: so few that they stay in the
// second-level cache, and so many that a transposed matrix is written by whole lines of a cache.
const pieceElements = 1 << 19

// pieces cuts a tensor.
func (s *source) pieces() []piece {
	rows := max(1, pieceElements/s.rowLength())
	var list []piece
	row := 0
	for i := range s.parts {
		p := &s.parts[i]
		for at := 0; at < p.n; at += rows {
			list = append(list, piece{s, p, row + at, p.at + at, min(rows, p.n-at)})
		}
		row += p.n
	}
	return list
}

// read reads the pieces of the tensors, several at a time.
func (r *reader) read(list []source) error {
	next := make(chan piece)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for p := range next {
				if err := guard.Call("reading weights", func() error { return r.readOne(p) }); err != nil {
					r.fail(err)
				}
			}
		})
	}
	for i := range list {
		for _, p := range list[i].parts {
			if p.at > 0 || p.matrix > 0 {
				continue
			}
			to := r.memory[p.ours]
			memory.Populate(unsafe.Slice((*byte)(to.Data), to.Elements()*to.DType.Size()))
		}
		for _, p := range list[i].pieces() {
			if r.failed() {
				break
			}
			next <- p
		}
	}
	close(next)
	workers.Wait()
	return r.err
}

// fail keeps the first error.
func (r *reader) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
}

func (r *reader) failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err != nil
}

// readOne reads a piece and reports it.
func (r *reader) readOne(p piece) error {
	if err := r.place(p); err != nil {
		return err
	}
	if !r.failed() {
		r.report(p.bytes / int64(p.rows()) * int64(p.n))
	}
	return nil
}

// place reads a piece and puts it where it belongs.
func (r *reader) place(p piece) error {
	length, whole := p.rowLength(), r.memory[p.part.ours]
	first, n := p.row*length, p.n*length*p.dtype.Size()
	to := kernels.Tensor{DType: whole.DType, Shape: []int{p.n, length}}
	at := p.part.first() + p.at
	if p.transposed {
		to.Strides = []int{1, p.part.columns()}
	} else {
		to.Strides, at = []int{length, 1}, p.at*length
	}
	to.Data = unsafe.Add(whole.Data, at*to.DType.Size())
	if !p.transposed && p.dtype == to.DType {
		return p.stored.read(first, unsafe.Slice((*byte)(to.Data), n))
	}
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	*buffer = slices.Grow((*buffer)[:0], n)[:n]
	if err := p.stored.read(first, *buffer); err != nil {
		return err
	}
	from := kernels.Tensor{Data: unsafe.Pointer(unsafe.SliceData(*buffer)), DType: p.dtype, Shape: to.Shape, Strides: []int{length, 1}}
	return oneThread.Copy(to, from)
}

// buffers hold what was read and is not converted yet, by threads that are many already.
var (
	buffers   = sync.Pool{New: func() any { return new([]byte) }}
	oneThread = &cpu.Backend{Threads: 1}
)

// report tells of bytes that were read.
func (r *reader) report(bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done += bytes
	if r.progress != nil {
		r.progress(r.done, r.total)
	}
}
