package filelock

import (
	"errors"
	"math"
	"os"

	"golang.org/x/sys/windows"
)

func lock(file *os.File) error {
	// Windows locks ranges, which nobody else can then read: this one lies behind all that the file
	// will hold.
	behind := windows.Overlapped{Offset: math.MaxUint32 - 1, OffsetHigh: math.MaxInt32}
	err := windows.LockFileEx(windows.Handle(file.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &behind)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return ErrLocked
	}
	return err
}
