package text_test

import (
	"testing"

	"holdfast/tui/text"
)

type environ map[string]string

func (e environ) get(name string) string { return e[name] }

func TestStyleFollowsTheLocale(t *testing.T) {
	for _, c := range []struct {
		name  string
		env   environ
		flag  bool
		ascii bool
	}{
		{"nothing set", environ{}, false, false},
		{"UTF-8", environ{"LANG": "en_US.UTF-8"}, false, false},
		{"spelled otherwise", environ{"LC_CTYPE": "C.utf8"}, false, false},
		{"C", environ{"LC_ALL": "C", "LANG": "en_US.UTF-8"}, false, true},
		{"POSIX", environ{"LANG": "POSIX"}, false, true},
		{"another character set", environ{"LANG": "de_DE@euro"}, false, true},
		{"LC_CTYPE before LANG", environ{"LC_CTYPE": "en_US.UTF-8", "LANG": "C"}, false, false},
		{"empty counts as unset", environ{"LC_ALL": "", "LANG": "C"}, false, true},
		{"asked for", environ{"LANG": "en_US.UTF-8"}, true, true},
		{"asked for without a locale", environ{}, true, true},
	} {
		if got := text.StyleFor(c.env.get, c.flag); got.ASCII != c.ascii {
			t.Errorf("%s: ASCII is %v", c.name, got.ASCII)
		}
	}
}

func TestColor(t *testing.T) {
	for _, c := range []struct {
		name     string
		when     string
		env      environ
		terminal bool
		want     bool
	}{
		{"terminal", "auto", environ{"TERM": "xterm"}, true, true},
		{"pipe", "auto", environ{"TERM": "xterm"}, false, false},
		{"always, into a pipe", "always", environ{"NO_COLOR": "1", "TERM": "dumb"}, false, true},
		{"never, though forced", "never", environ{"CLICOLOR_FORCE": "1"}, true, false},
		{"NO_COLOR", "auto", environ{"NO_COLOR": "1"}, true, false},
		{"NO_COLOR empty", "auto", environ{"NO_COLOR": ""}, true, true},
		{"forced into a pipe", "auto", environ{"CLICOLOR_FORCE": "1"}, false, true},
		{"NO_COLOR before force", "auto", environ{"NO_COLOR": "0", "CLICOLOR_FORCE": "1"}, true, false},
		{"force of 0", "auto", environ{"CLICOLOR_FORCE": "0"}, false, false},
		{"CLICOLOR of 0", "auto", environ{"CLICOLOR": "0"}, true, false},
		{"dumb", "auto", environ{"TERM": "dumb"}, true, false},
		{"no TERM, as on Windows", "", environ{}, true, true},
	} {
		if got := text.Color(c.when, c.env.get, c.terminal); got != c.want {
			t.Errorf("%s: got %v", c.name, got)
		}
	}
}

func TestMultiplexer(t *testing.T) {
	for _, c := range []struct{ tmux, sty, want string }{
		{"", "", ""},
		{"/tmp/tmux-0/default,1,0", "", "tmux"},
		{"", "1.pts-0.host", "screen"},
		{"/tmp/tmux-0/default,1,0", "1.pts-0.host", "tmux"},
	} {
		env := func(name string) string { return map[string]string{"TMUX": c.tmux, "STY": c.sty}[name] }
		if got := text.Multiplexer(env); got != c.want {
			t.Errorf("TMUX=%q STY=%q: got %q", c.tmux, c.sty, got)
		}
	}
}
