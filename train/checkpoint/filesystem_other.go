//go:build !windows

package checkpoint

// foldersSync reports whether a folder can be opened and synced as a file is.
const foldersSync = true
