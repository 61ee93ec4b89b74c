package lease

import "strings"

const maxID = 200

// CheckID reports whether id can name a lease: 1 to 200 bytes; no path separator, NUL or control character; not
// "." or ".."; no leading dot; no name that Windows reserves. The error is an *IDError.
func CheckID(id string) error { return checkID("check", id) }

func checkID(op, id string) error {
	if reason := badID(id); reason != "" {
		return &IDError{Op: op, ID: id, Reason: reason}
	}
	return nil
}

func badID(id string) string {
	switch {
	case id == "":
		return "it is empty"
	case len(id) > maxID:
		return "it is longer than 200 bytes"
	case id == "." || id == "..":
		return "it is a directory"
	case id[0] == '.':
		return "it begins with a dot"
	case strings.ContainsAny(id, `/\`):
		return "it has a path separator"
	case strings.ContainsFunc(id, func(r rune) bool { return r < 0x20 || r == 0x7f || r >= 0x80 && r < 0xa0 }):
		return "it has a control character"
	case reserved(id):
		return "Windows reserves that name"
	}
	return ""
}

// reserved tells the device names, which Windows reserves with any extension, too.
func reserved(id string) bool {
	base, _, _ := strings.Cut(strings.ToUpper(id), ".")
	base = strings.TrimRight(base, " ")
	switch base {
	case "CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$":
		return true
	}
	for _, port := range []string{"COM", "LPT"} {
		if n, ok := strings.CutPrefix(base, port); ok && len([]rune(n)) == 1 && strings.Contains("123456789¹²³", n) {
			return true
		}
	}
	return false
}
