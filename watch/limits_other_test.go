//go:build !linux

package watch

func watchWithinLimit(string) int { return 4 }
