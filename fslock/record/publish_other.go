//go:build !linux && !darwin && !windows

package record

import "errors"

// renameNoReplace: there is no such call.
func renameNoReplace(string, string) error { return errors.ErrUnsupported }
