package memory

import (
	"os"
	"path/filepath"
	"testing"
)

// The least limit of a group and those above it counts, in both versions of control groups, and in
// a container, which sees its own group's files at the top.
func TestGroupLimit(t *testing.T) {
	const none = ^uint64(0)
	for name, c := range map[string]struct {
		files map[string]string
		want  uint64
	}{
		"nothing":      {nil, none},
		"no limit":     {map[string]string{"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"}, none},
		"version 2":    {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "4096\n", "sys/fs/cgroup/a/memory.max": "8192\n"}, 4096},
		"one above":    {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "8192\n"}, 8192},
		"container":    {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "4096\n"}, 4096},
		"version 1":    {map[string]string{"proc/self/cgroup": "4:memory:/a\n1:cpu:/a\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "4096\n"}, 4096},
		"old v1 image": {map[string]string{"proc/self/cgroup": "4:memory:/docker/x\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "4096\n"}, 4096},
		"another kind": {map[string]string{"proc/self/cgroup": "3:cpuset:/a\n", "sys/fs/cgroup/a/memory.max": "4096\n"}, none},
		"damaged":      {map[string]string{"proc/self/cgroup": "x\n\n0::\n", "sys/fs/cgroup/memory.max": "-1\n"}, none},
		"path upwards": {map[string]string{"proc/self/cgroup": "0::/../..\n", "sys/fs/cgroup/memory.max": "4096\n"}, 4096},
	} {
		root := t.TempDir()
		for file, text := range c.files {
			file = filepath.Join(root, file)
			if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if got := groupLimit(root); got != c.want {
			t.Errorf("%s: the limit is %d, want %d", name, got, c.want)
		}
	}
}

func TestTotal(t *testing.T) {
	bytes, known := Total()
	if !known || bytes < 64<<20 {
		t.Errorf("the machine has %d bytes, known: %v", bytes, known)
	}
}
