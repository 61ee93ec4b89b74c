//go:build !unix

package tui

import "os"

// stopSignals are none: there is no such signal here.
func stopSignals() (stops <-chan os.Signal, ignore func()) { return nil, func() {} }

// stopSelf reports that a process cannot be stopped from its terminal here.
func stopSelf() bool { return false }
