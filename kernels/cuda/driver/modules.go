//go:build gpu

package driver

import (
	"fmt"
	"sync"

	"gorgonia.org/cu"
)

// modules are the functions of the modules that a device has loaded. A module is loaded when one of
// its kernels is first launched, which takes the driver some tenths of a second the first time ever
// and milliseconds from its cache later.
type modules struct {
	sync.RWMutex
	image     func(name string) (string, error)
	loaded    map[string]cu.Module
	functions map[Kernel]cu.Function
}

// HasModule reports whether a module is loaded.
func (g *GPU) HasModule(name string) bool {
	g.modules.RLock()
	defer g.modules.RUnlock()
	_, loaded := g.modules.loaded[name]
	return loaded
}

// AddModule loads a module of PTX or a cubin.
func (g *GPU) AddModule(name, image string) error {
	g.modules.Lock()
	defer g.modules.Unlock()
	return g.loadImage(name, image)
}

// function finds a kernel, and loads its module if this is the first use of it.
func (g *GPU) function(l Launch) (cu.Function, error) {
	m := &g.modules
	m.RLock()
	f, ok := m.functions[l.Kernel]
	m.RUnlock()
	if ok {
		return f, nil
	}
	m.Lock()
	defer m.Unlock()
	if f, ok := m.functions[l.Kernel]; ok {
		return f, nil
	}
	module, err := g.load(l.Kernel.Module)
	if err != nil {
		return f, err
	}
	if err := g.Do("cuModuleGetFunction("+l.Kernel.Entry+")", func() error {
		f, err = module.Function(l.Kernel.Entry)
		return err
	}); err != nil {
		return f, err
	}
	// A kernel has room for 48 KB unless it is told otherwise; where it depends on the problem, a
	// later launch may need more.
	const enough = 64 << 10
	if l.SharedBytes > 0 {
		if err := limitSharedMemory(g.context, f, max(l.SharedBytes, enough)); err != nil {
			return f, fmt.Errorf("%s: %s: %w", g.Name(), l.Kernel.Entry, err)
		}
	}
	if l.Early != nil {
		if err := preferSharedMemory(g.context, f); err != nil {
			return f, fmt.Errorf("%s: %s: %w", g.Name(), l.Kernel.Entry, err)
		}
	}
	if m.functions == nil {
		m.functions = map[Kernel]cu.Function{}
	}
	m.functions[l.Kernel] = f
	return f, nil
}

// load gives a module. The caller holds the lock.
func (g *GPU) load(name string) (cu.Module, error) {
	m := &g.modules
	if module, ok := m.loaded[name]; ok {
		return module, nil
	}
	image, err := m.image(name)
	if err != nil {
		return cu.Module{}, fmt.Errorf("%s: %w", g.Name(), err)
	}
	err = g.loadImage(name, image)
	return m.loaded[name], err
}

// loadImage makes a module of PTX or a cubin. The caller holds the lock.
func (g *GPU) loadImage(name, image string) error {
	return g.Do("cuModuleLoadData("+name+")", func() error {
		module, err := cu.LoadData(image)
		if err != nil {
			return err
		}
		if g.modules.loaded == nil {
			g.modules.loaded = map[string]cu.Module{}
		}
		g.modules.loaded[name] = module
		return nil
	})
}
