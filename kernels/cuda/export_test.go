//go:build gpu

package cuda

// WithoutMaps makes a device choose kernels as one that has no tensor maps, until the function it gives is called.
func (d *Device) WithoutMaps() (restore func()) {
	before := d.withoutMaps
	d.withoutMaps = true
	return func() { d.withoutMaps = before }
}
