-- inspect.lua: KEYS[1]=hash KEYS[2]=queue
-- Returns {state, who, held so far µs, left µs, token, runs, waiting, live, abandoned, revoked}
local k = load(KEYS[1])
return {k.s, k.m, k.t > 0 and math.max(now - k.t, 0) or 0, k.live and k.x - now or 0, k.s == 'h' and k.t or k.f, k.n, call('ZCARD', KEYS[2]),
  k.live and 1 or 0, k.a and 1 or 0, k.v and 1 or 0}
