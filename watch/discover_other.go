//go:build !windows

package watch

// ownStorageRules are the last ways to AFT's storage, those of this system.
var ownStorageRules = [...]rule{{"", ".local/share/cortexkit/aft"}}
