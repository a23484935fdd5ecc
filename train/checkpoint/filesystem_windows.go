package checkpoint

// foldersSync is false: Windows has no way to sync a folder.
const foldersSync = false
