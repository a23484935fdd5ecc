package memory

import (
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func total() (uint64, bool) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, false
	}
	return min(uint64(info.Totalram)*uint64(info.Unit), groupLimit("/")), true
}

// groupLimit is the least limit of the control groups that this process is in, below a root of the
// file system. A container sees its own group's file alone, at the top.
func groupLimit(root string) uint64 {
	least := ^uint64(0)
	groups, err := os.ReadFile(path.Join(root, "proc/self/cgroup"))
	if err != nil {
		return least
	}
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // such as 4:memory:/a or 0::/a
		if len(parts) < 3 {
			continue
		}
		top, file := path.Join(root, "sys/fs/cgroup"), "memory.max"
		switch {
		case parts[1] == "memory":
			top, file = path.Join(top, "memory"), "memory.limit_in_bytes"
		case parts[1] != "":
			continue
		}
		for group := path.Join("/", parts[2]); ; group = path.Dir(group) {
			text, err := os.ReadFile(path.Join(top, group, file))
			if limit, wrong := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil && wrong == nil {
				least = min(least, limit)
			}
			if group == "/" {
				break
			}
		}
	}
	return least
}
