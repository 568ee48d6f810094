-- Limits and budgets of one key: each call is one atomic operation. It decides what `FileLimits` decides.
--
-- KEYS  1 numbers of the key, 2 leases in flight by their end, 3 what each lease has reserved, 4 the same of leases
--       that were not renewed, 5 totals by expert, 6 whether the lease is settled
-- ARGV  1 operation, 2 moment or '' for the time of this server, 3 lease, then those of the operation
-- The answer is: which limit rejects or '', the moment, requests in flight, the numbers as 8-byte doubles.

local WINDOW_S, LEASE_S, KEPT_S, UNSETTLED_S, SETTLED_S = 60, 30, 62 * 86400, 86400, 120
local DAY, DAY_REQUESTS, DAY_TOKENS, DAY_COST, MONTH, MONTH_REQUESTS, MONTH_TOKENS, MONTH_COST, ESTIMATED = 1, 2, 3, 4, 5, 6, 7, 8, 9
local TOTALS_WIDTH, SECOND, REQUESTS, TOKENS, RESERVED_TOKENS, RESERVED_COST, WIDTH = 12, 13, 16, 76, 137, 138, 138

local now = tonumber(ARGV[2])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) + tonumber(time[2]) / 1e6
end
local operation, lease = ARGV[1], ARGV[3]
local is_local = string.sub(lease, 1, 6) == 'local ' -- admitted by a gateway while this store was away

local function find_day(moment) return math.floor(moment / 86400) end

local function find_month(moment) -- of the calendar, from days since 1970
  local days = find_day(moment) + 719468
  local era = math.floor(days / 146097)
  local of_era = days - era * 146097
  local year = math.floor((of_era - math.floor(of_era / 1460) + math.floor(of_era / 36524) - math.floor(of_era / 146096)) / 365)
  local of_year = of_era - (365 * year + math.floor(year / 4) - math.floor(year / 100))
  local shifted = math.floor((5 * of_year + 2) / 153) -- 0 is March
  local month = shifted < 10 and shifted + 3 or shifted - 9
  return (year + era * 400 + (month <= 2 and 1 or 0)) * 12 + month - 1
end

local today, this_month = find_day(now), find_month(now)

local function read(content, width)
  if not content then
    local zeros = {}
    for place = 1, width do zeros[place] = 0 end
    return zeros
  end
  if #content ~= 8 * width then return nil end
  return { struct.unpack('<' .. string.rep('d', width), content) }
end

local function pack(numbers, width) return struct.pack('<' .. string.rep('d', width), unpack(numbers, 1, width)) end

local function roll_periods(numbers) -- numbers of a day or a month that is over become zero
  if numbers[DAY] ~= today then
    numbers[DAY], numbers[DAY_REQUESTS], numbers[DAY_TOKENS], numbers[DAY_COST] = today, 0, 0, 0
  end
  if numbers[MONTH] ~= this_month then
    numbers[MONTH], numbers[ESTIMATED] = this_month, 0
    numbers[MONTH_REQUESTS], numbers[MONTH_TOKENS], numbers[MONTH_COST] = 0, 0, 0
  end
end

local content = redis.call('GET', KEYS[1])
local numbers = read(content, WIDTH)
if not numbers then return redis.error_reply('IR3DEDAMAGED ' .. KEYS[1] .. ' holds ' .. #content .. ' bytes instead of ' .. 8 * WIDTH) end
roll_periods(numbers)
local second = math.floor(now)
local last = numbers[SECOND]
if last - second > 0 and last - second < WINDOW_S then second = last end -- a failover may set the clock back a little
if second ~= last then
  local is_over = not (second - last > 0 and second - last < WINDOW_S)
  for gone = is_over and second - WINDOW_S + 1 or last + 1, second do
    numbers[REQUESTS + gone % WINDOW_S + 1], numbers[TOKENS + gone % WINDOW_S + 1] = 0, 0
  end
  numbers[SECOND] = second
end

local function sum_minute(first)
  local total = 0
  for place = first + 1, first + WINDOW_S do total = total + numbers[place] end
  return total
end

local function release(tokens, cost)
  numbers[RESERVED_TOKENS] = math.max(0, numbers[RESERVED_TOKENS] - tokens)
  numbers[RESERVED_COST] = math.max(0, numbers[RESERVED_COST] - cost)
end

local function read_lease(text)
  local tokens, cost, since, state = string.match(text, '^(%S+) (%S+) (%S+) ?(%S*)$')
  return tonumber(tokens), tonumber(cost), tonumber(since), state
end

local function hold(name, text) -- a lease is in flight for a while
  redis.call('ZADD', KEYS[2], now + LEASE_S, name)
  redis.call('HSET', KEYS[3], name, text)
end

local is_dirty = false

local function expire_leases() -- of gateways that are dead: what they reserved stays charged
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, 1000)) do
    local text = redis.call('HGET', KEYS[3], name)
    is_dirty = true
    redis.call('ZREM', KEYS[2], name)
    redis.call('HDEL', KEYS[3], name)
    if text then
      local tokens, cost = read_lease(text)
      release(tokens, cost)
      redis.call('HSET', KEYS[4], name, text)
      redis.call('EXPIRE', KEYS[4], UNSETTLED_S)
    end
  end
end

local function revive(name) -- a lease that was not renewed in time, of a gateway that lives
  local text = redis.call('HGET', KEYS[4], name)
  if not text then return nil end
  local tokens, cost = read_lease(text)
  numbers[RESERVED_TOKENS], numbers[RESERVED_COST] = numbers[RESERVED_TOKENS] + tokens, numbers[RESERVED_COST] + cost
  redis.call('HDEL', KEYS[4], name)
  hold(name, text)
  return text
end

local function add_totals(row, tokens, cost, since, is_estimated)
  local is_today, is_this_month = find_day(since) == today, find_month(since) == this_month
  if is_today or tokens > 0 then row[DAY_TOKENS] = math.max(0, row[DAY_TOKENS] + tokens) end
  if is_this_month or tokens > 0 then row[MONTH_TOKENS] = math.max(0, row[MONTH_TOKENS] + tokens) end
  if is_today or cost > 0 then row[DAY_COST] = math.max(0, row[DAY_COST] + cost) end
  if is_this_month or cost > 0 then row[MONTH_COST] = math.max(0, row[MONTH_COST] + cost) end
  if is_estimated then row[ESTIMATED] = row[ESTIMATED] + 1 end
end

local function add(tokens, cost, since, is_estimated)
  add_totals(numbers, tokens, cost, since, is_estimated)
  local is_within = second - since >= 0 and second - since < WINDOW_S
  if is_within or tokens > 0 then
    local place = TOKENS + (is_within and since or second) % WINDOW_S + 1
    numbers[place] = math.max(0, numbers[place] + tokens)
  end
end

local function add_request()
  numbers[DAY_REQUESTS], numbers[MONTH_REQUESTS] = numbers[DAY_REQUESTS] + 1, numbers[MONTH_REQUESTS] + 1
  local place = REQUESTS + second % WINDOW_S + 1
  numbers[place] = numbers[place] + 1
end

local function cancel_request(since)
  if find_day(since) == today then numbers[DAY_REQUESTS] = math.max(0, numbers[DAY_REQUESTS] - 1) end
  if find_month(since) == this_month then numbers[MONTH_REQUESTS] = math.max(0, numbers[MONTH_REQUESTS] - 1) end
  if second - since >= 0 and second - since < WINDOW_S then
    local place = REQUESTS + since % WINDOW_S + 1
    numbers[place] = math.max(0, numbers[place] - 1)
  end
end

local function find_spent(per_minute, per_day, per_month)
  if per_month and numbers[MONTH_COST] >= per_month then return 'budget_per_month' end
  if per_day and numbers[DAY_COST] >= per_day then return 'budget_per_day' end
  if per_minute and sum_minute(TOKENS) >= per_minute then return 'tokens_per_minute' end
  return ''
end

local function answer(rejected, is_changed)
  local packed = pack(numbers, WIDTH)
  if is_changed then redis.call('SET', KEYS[1], packed, 'EX', KEPT_S) end
  return { rejected, string.format('%.17g', now), redis.call('ZCARD', KEYS[2]), packed }
end

local function charge_expert(name, tokens, cost, since, is_new, is_estimated)
  local found = redis.call('HGET', KEYS[5], name)
  local row = read(found, TOTALS_WIDTH) or read(nil, TOTALS_WIDTH)
  roll_periods(row)
  if is_new then row[DAY_REQUESTS], row[MONTH_REQUESTS] = row[DAY_REQUESTS] + 1, row[MONTH_REQUESTS] + 1 end
  add_totals(row, tokens, cost, since, is_estimated)
  redis.call('HSET', KEYS[5], name, pack(row, TOTALS_WIDTH))
  redis.call('EXPIRE', KEYS[5], KEPT_S)
end

expire_leases()

if operation == 'admit' then
  local spends, requests, tokens, concurrent = ARGV[4] == '1', tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
  local is_known = redis.call('HEXISTS', KEYS[3], lease) == 1 or redis.call('EXISTS', KEYS[6]) == 1
  if is_known then return answer('', is_dirty) end -- it was sent again, or cancelled before it came
  local rejected = spends and find_spent(tokens, tonumber(ARGV[8]), tonumber(ARGV[9])) or ''
  if rejected == '' and requests and sum_minute(REQUESTS) >= requests then rejected = 'requests_per_minute' end
  if rejected == '' and concurrent and redis.call('ZCARD', KEYS[2]) >= concurrent then rejected = 'concurrent' end
  if rejected == '' then
    add_request()
    hold(lease, string.format('0 0 %d', second))
    redis.call('EXPIRE', KEYS[3], KEPT_S)
  end
  return answer(rejected, true)
end

if operation == 'reserve' then
  local tokens, cost, since = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
  if redis.call('EXISTS', KEYS[6]) == 1 then return answer('', is_dirty) end -- it was settled, and this comes late
  local found = redis.call('HGET', KEYS[3], lease) or revive(lease) or ''
  local _, _, _, state = read_lease(found)
  if state == 'reserved' then return answer('', true) end
  local rejected = find_spent(tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]))
  if rejected == '' then
    add(tokens, cost, since, false)
    numbers[RESERVED_TOKENS], numbers[RESERVED_COST] = numbers[RESERVED_TOKENS] + tokens, numbers[RESERVED_COST] + cost
    hold(lease, ARGV[4] .. ' ' .. ARGV[5] .. ' ' .. ARGV[6] .. ' reserved')
  elseif state ~= 'cancelled' then
    cancel_request(since)
    hold(lease, '0 0 ' .. ARGV[6] .. ' cancelled')
  end
  return answer(rejected, true)
end

local function take() -- the lease, which ends; what it has reserved
  local found = redis.call('HGET', KEYS[3], lease)
  if found then
    local tokens, cost = read_lease(found)
    release(tokens, cost)
  else
    found = redis.call('HGET', KEYS[4], lease)
  end
  redis.call('HDEL', KEYS[3], lease)
  redis.call('HDEL', KEYS[4], lease)
  redis.call('ZREM', KEYS[2], lease)
  return found
end

if operation == 'cancel' then -- whether it was admitted is unknown to the gateway
  redis.call('SET', KEYS[6], '1', 'EX', SETTLED_S)
  local found = take()
  if found then
    local _, _, since = read_lease(found)
    cancel_request(since)
  end
  return answer('', true)
end

if operation == 'settle' then
  local is_spent, tokens, cost = ARGV[4] == '1', tonumber(ARGV[5]), tonumber(ARGV[6])
  local is_estimated, expert, is_instead = ARGV[7] == '1', ARGV[8], ARGV[9] == '1'
  local before_tokens, before_cost, before_since = tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12])
  local is_again = ARGV[13] == '1' -- the answer to the first time was lost
  if redis.call('EXISTS', KEYS[6]) == 1 then return answer('', is_dirty) end
  local found = take()
  if not found and is_again and not is_local then return answer('', true) end -- it was settled before
  redis.call('SET', KEYS[6], '1', 'EX', is_local and UNSETTLED_S or SETTLED_S)
  if not found then add_request() end -- this store was away, or has lost it
  if not is_instead then
    before_tokens, before_cost = 0, 0
    if found then before_tokens, before_cost, before_since = read_lease(found) end
  end
  add(tokens - before_tokens, cost - before_cost, before_since, is_estimated)
  if is_spent then
    if is_instead then
      charge_expert(expert, tokens - before_tokens, cost - before_cost, before_since, false, is_estimated)
    else
      charge_expert(expert, tokens, cost, second, true, is_estimated)
    end
  end
  return answer('', true)
end

if operation == 'renew' then
  for place = 4, #ARGV do
    if redis.call('HEXISTS', KEYS[3], ARGV[place]) == 1 then
      redis.call('ZADD', KEYS[2], now + LEASE_S, ARGV[place])
    else
      is_dirty = revive(ARGV[place]) and true or is_dirty
    end
  end
  return answer('', is_dirty)
end

local found = answer('', is_dirty) -- read, also while no more can be written
for place = 4, #ARGV do
  local row = read(redis.call('HGET', KEYS[5], ARGV[place]), TOTALS_WIDTH) or read(nil, TOTALS_WIDTH)
  found[#found + 1] = pack(row, TOTALS_WIDTH)
end
return found
