package schedule

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
)

// zadd knows NX only.
func (s *store) zadd(a []string) any {
	if len(a) != 4 || a[1] != "NX" {
		return errSyntax
	}
	score, err := strconv.ParseFloat(a[2], 64)
	if err != nil {
		return errors.New("ERR value is not a valid float")
	}
	v, err := s.create(a[0], "zset")
	if err != nil {
		return err
	}
	if slices.ContainsFunc(v.queue, func(m member) bool { return m.name == a[3] }) {
		return int64(0)
	}
	v.queue = append(v.queue, member{score, a[3]})
	slices.SortFunc(v.queue, func(x, y member) int { return cmp.Or(cmp.Compare(x.score, y.score), cmp.Compare(x.name, y.name)) })
	return int64(1)
}

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
	return []any{first.name, strconv.FormatFloat(first.score, 'f', -1, 64)}
}

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
		list = append(list, v.queue[i].name)
	}
	return list
}
