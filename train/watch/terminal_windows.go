package watch

import "golang.org/x/sys/windows"

// obeysEscapes makes a console erase when it is told to, and reports whether it does.
func obeysEscapes(fd uintptr) bool {
	var mode uint32
	if err := windows.GetConsoleMode(windows.Handle(fd), &mode); err != nil {
		return false
	}
	return windows.SetConsoleMode(windows.Handle(fd), mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}
