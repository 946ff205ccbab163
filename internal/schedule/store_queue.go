package schedule

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
)

// zadd knows no option but NX.
func (s *store) zadd(a []string) any {
	once := len(a) == 4 && a[1] == "NX"
	if once {
		a = append([]string{a[0]}, a[2:]...)
	}
	if len(a) != 3 {
		return errSyntax
	}
	score, err := strconv.ParseFloat(a[1], 64)
	if err != nil {
		return errors.New("ERR value is not a valid float")
	}
	v, err := s.create(a[0], "zset")
	if err != nil {
		return err
	}
	i := v.member(a[2])
	switch {
	case i < 0:
		v.queue = append(v.queue, member{score, a[2]})
	case once:
		return int64(0)
	default:
		v.queue[i].score = score
	}
	slices.SortFunc(v.queue, func(x, y member) int { return cmp.Or(cmp.Compare(x.score, y.score), cmp.Compare(x.name, y.name)) })
	return count(i < 0)
}

// member returns the rank of a member of a sorted set, or -1.
func (v *value) member(name string) int {
	return slices.IndexFunc(v.queue, func(m member) bool { return m.name == name })
}

func (s *store) zscore(a []string) any {
	v, err := s.look(a[0], "zset")
	if err != nil {
		return err
	}
	if v != nil {
		if i := v.member(a[1]); i >= 0 {
			return v.queue[i].text()
		}
	}
	return nil
}

func (s *store) zrank(a []string) any {
	v, err := s.look(a[0], "zset")
	if err != nil {
		return err
	}
	if v != nil {
		if i := v.member(a[1]); i >= 0 {
			return int64(i)
		}
	}
	return nil
}

// text is the score as Redis writes it.
func (m member) text() string { return strconv.FormatFloat(m.score, 'f', -1, 64) }

func (s *store) zrem(a []string) any {
	v, err := s.look(a[0], "zset")
	if err != nil {
		return err
	}
	if v == nil {
		return int64(0)
	}
	before := len(v.queue)
	v.queue = slices.DeleteFunc(v.queue, func(m member) bool { return slices.Contains(a[1:], m.name) })
	if len(v.queue) == 0 {
		delete(s.keys, a[0])
	}
	return int64(before - len(v.queue))
}

func (s *store) zcard(a []string) any {
	v, err := s.look(a[0], "zset")
	if err != nil {
		return err
	}
	if v == nil {
		return int64(0)
	}
	return int64(len(v.queue))
}

func (s *store) zpopmin(a []string) any {
	v, err := s.look(a[0], "zset")
	if err != nil {
		return err
	}
	if v == nil {
		return []any{}
	}
	first := v.queue[0]
	if v.queue = slices.Delete(v.queue, 0, 1); len(v.queue) == 0 {
		delete(s.keys, a[0])
	}
	return []any{first.name, first.text()}
}

// zrange knows WITHSCORES, and no negative ranks.
func (s *store) zrange(a []string) any {
	v, err := s.look(a[0], "zset")
	if err != nil {
		return err
	}
	list := []any{}
	from, err1 := strconv.Atoi(a[1])
	to, err2 := strconv.Atoi(a[2])
	if v == nil || err1 != nil || err2 != nil {
		return list
	}
	for i := from; i <= to && i < len(v.queue); i++ {
		if list = append(list, v.queue[i].name); len(a) == 4 {
			list = append(list, v.queue[i].text())
		}
	}
	return list
}
