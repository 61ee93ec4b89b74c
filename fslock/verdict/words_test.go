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
		"ünïcödé":           `$'\xc3\xbcn\xc3\xafc\xc3\xb6d\xc3\xa9'`,
		"a\x1b[2Jb":         `$'a\x1b[2Jb'`,
		"it's\n\tover":      `$'it\x27s\x0a\x09over'`,
		"bell\a, \\ and \"": `$'bell\x07, \x5c and "'`,
		"\xff.lock":         `$'\xff.lock'`,
		"\xe9a0":            `$'\xe9a0'`,
		"csi \u009b31m":     `$'csi \xc2\x9b31m'`,
		"left \u202e right": `$'left \xe2\x80\xae right'`,
		"\U0001f512\x01":    `$'\xf0\x9f\x94\x92\x01'`,
		"'\x7f'":            `$'\x27\x7f\x27'`,
		"\ufffd":            `$'\xef\xbf\xbd'`,
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
		for _, locale := range [...]string{"C", "C.UTF-8"} {
			cmd := exec.CommandContext(t.Context(), bash, "-c", "printf %s "+q)
			cmd.Env = append(os.Environ(), "LC_ALL="+locale)
			out, err := cmd.Output()
			if err != nil || string(out) != word {
				t.Errorf("%s comes back as %q in %s (%v), want %q", q, out, locale, err, word)
			}
		}
	}
}

// An ID may begin with a dash: quotes do not keep a verb from taking it for an option.
func TestCommandOnAnIDThatLooksLikeAnOption(t *testing.T) {
	for id, want := range map[string]string{
		"x":            "holdfast claim x --hold --root /r",
		"-x":           "holdfast claim --hold --root /r -- '-x'",
		"-\xe9":        `holdfast claim --hold --root /r -- $'-\xe9'`,
		"a -- '-b":     `holdfast claim 'a -- '\''-b' --hold --root /r`,
		"- -- '-":      `holdfast claim --hold --root /r -- '- -- '\''-'`,
		"a -- $'-\x01": `holdfast claim $'a -- $\x27-\x01' --hold --root /r`,
	} {
		if got := With(Command("claim", id, "--hold"), "--root /r"); got != want {
			t.Errorf("%q: %s, want %s", id, got, want)
		}
	}
}
