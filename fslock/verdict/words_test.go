package verdict

import (
	"os"
	"os/exec"
	"testing"
)

func TestQuotedWordsComeBackFromTheShell(t *testing.T) {
	words := map[string]string{
		"agent-1":           "agent-1",
		"/a/b_c.lock":       "/a/b_c.lock",
		"a@b:c%d+e=f,g":     "a@b:c%d+e=f,g",
		"":                  "''",
		"-rf":               "'-rf'",
		"two words":         "'two words'",
		"it's":              `'it'\''s'`,
		"$(reboot)":         "'$(reboot)'",
		"`reboot`; reboot":  "'`reboot`; reboot'",
		`back\slash "and"`:  `'back\slash "and"'`,
		"~root":             "'~root'",
		"ünïcödé":           "'ünïcödé'",
		"a\x1b[2Jb":         `$'a\x1b[2Jb'`,
		"it's\n\tover":      `$'it\'s\n\tover'`,
		"bell\a, \\ and \"": `$'bell\a, \\ and \"'`,
		"\xff.lock":         `$'\xff.lock'`,
		"csi \u009b31m":     `$'csi \u009b31m'`,
		"left \u202e right": `$'left \u202e right'`,
		"\U0001f512\x01":    `$'\U0001f512\x01'`,
		"ends in \x01\"":    `$'ends in \x01\"'`,
		"'\x7f'":            `$'\'\x7f\''`,
	}
	bash, err := exec.LookPath("bash")
	if err != nil && os.Getenv("HOLDFAST_STRICT") == "1" {
		t.Fatal(err)
	}
	for word, want := range words {
		q := Quote(word)
		if q != want {
			t.Errorf("%q is quoted as %s, want %s", word, q, want)
		}
		if bash == "" {
			continue
		}
		cmd := exec.CommandContext(t.Context(), bash, "-c", "printf %s "+q)
		cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
		out, err := cmd.Output()
		if err != nil || string(out) != word {
			t.Errorf("%s comes back as %q (%v), want %q", q, out, err, word)
		}
	}
}
