//go:build gpu

package cuda

import (
	"embed"
	"fmt"
	"io/fs"
	"sync"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels/cuda/ptx"
	"gorgonia.org/cu"
)

//go:embed ptx/*.zst ptx/*.index
var images embed.FS

// compiledKernels are those that the program was built with.
var compiledKernels = sync.OnceValues(func() (*ptx.Library, error) {
	files, err := fs.Sub(images, "ptx")
	if err != nil {
		return nil, err
	}
	return ptx.Open(files)
})

// modules are the functions of the modules that a device has loaded. A module is loaded when one of its kernels is first
// launched, which takes the driver some tenths of a second the first time ever and milliseconds from its cache later.
type modules struct {
	sync.RWMutex
	loaded    map[string]cu.Module
	functions map[kernelName]cu.Function
}

// launch queues a kernel that takes the maps and then the struct that arguments points to.
func (d *Device) launch(s launchShape, maps []encodedMap, arguments unsafe.Pointer) error {
	f, err := d.function(s)
	if err != nil {
		return err
	}
	if d.isVarying() {
		return d.varied.change(d, f, s, maps, arguments)
	}
	d.last.Store(&s)
	if err := launchKernel(d.context, f, d.stream, s, maps, arguments); err != nil {
		return fmt.Errorf("cuda:%d: %w", d.index, err)
	}
	if d.varied != nil {
		if err := d.varied.note(d); err != nil {
			return err
		}
	}
	if queued := d.traced.Load(); queued != nil {
		(*queued)(s.kernel.entry)
	}
	return nil
}

// tensorMaps are maps that were encoded: encoding one takes longer than finding it, and a step of training asks for those
// of the step before.
type tensorMaps struct {
	sync.Mutex
	encoded map[tensorMap]encodedMap
}

// mostMaps is how many maps a device remembers before it begins anew.
const mostMaps = 1 << 12

// encode finds a map, or encodes it.
func (d *Device) encode(t tensorMap) (encodedMap, error) {
	m := &d.maps
	m.Lock()
	defer m.Unlock()
	if e, ok := m.encoded[t]; ok {
		return e, nil
	}
	e, err := encode(d.context, t)
	if err != nil {
		return e, err
	}
	if m.encoded == nil || len(m.encoded) == mostMaps {
		m.encoded = map[tensorMap]encodedMap{}
	}
	m.encoded[t] = e
	return e, nil
}

// function finds a kernel, and loads its module if this is the first use of it.
func (d *Device) function(s launchShape) (cu.Function, error) {
	m := &d.modules
	m.RLock()
	f, ok := m.functions[s.kernel]
	m.RUnlock()
	if ok {
		return f, nil
	}
	m.Lock()
	defer m.Unlock()
	if f, ok := m.functions[s.kernel]; ok {
		return f, nil
	}
	module, err := d.load(s.kernel.module)
	if err != nil {
		return f, err
	}
	if err := d.do("cuModuleGetFunction("+s.kernel.entry+")", func() error {
		f, err = module.Function(s.kernel.entry)
		return err
	}); err != nil {
		return f, err
	}
	// A kernel has room for 48 KB unless it is told otherwise; where it depends on the problem, a later launch may need more.
	const enough = 64 << 10
	if s.sharedBytes > 0 {
		if err := limitSharedMemory(d.context, f, max(s.sharedBytes, enough)); err != nil {
			return f, fmt.Errorf("cuda:%d: %s: %w", d.index, s.kernel.entry, err)
		}
	}
	if m.functions == nil {
		m.functions = map[kernelName]cu.Function{}
	}
	m.functions[s.kernel] = f
	return f, nil
}

// load gives a module. The caller holds the lock.
func (d *Device) load(name string) (cu.Module, error) {
	m := &d.modules
	if module, ok := m.loaded[name]; ok {
		return module, nil
	}
	library, err := compiledKernels()
	if err != nil {
		return cu.Module{}, fmt.Errorf("cuda:%d: the compiled kernels: %w", d.index, err)
	}
	image, err := library.Text(name)
	if err != nil {
		return cu.Module{}, fmt.Errorf("cuda:%d: %w", d.index, err)
	}
	err = d.loadImage(name, image)
	return m.loaded[name], err
}

// loadImage makes a module of PTX or a cubin. The caller holds the lock.
func (d *Device) loadImage(name, image string) error {
	return d.do("cuModuleLoadData("+name+")", func() error {
		module, err := cu.LoadData(image)
		if err != nil {
			return err
		}
		if d.modules.loaded == nil {
			d.modules.loaded = map[string]cu.Module{}
		}
		d.modules.loaded[name] = module
		return nil
	})
}
