//go:build !unix

package audit

const openFlags = 0

// canSyncDir: a directory cannot be flushed here.
const canSyncDir = false
