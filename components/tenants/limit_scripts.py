"""Scripts of a request's limits: whose they are, what a stream has used, and how a client reads the nearest of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from components.gateway.envoy_names import DECISIONS
from components.gateway.gateway_errors import RESET
from components.gateway.request_log import COUNTED, METERED
from components.specs.limits import LIMITS, MOST_COUNTED
from floor.headers import CLIENT_HEADER, TENANT_HEADER

USED = "llm_total_token"
"""Where the AI gateway keeps the tokens of an answer, in the metadata that logs have too."""
# Few tokens of a prompt in JSON are shorter. No part counts the prompt of a stream that its client leaves.
_BYTES_OF_A_TOKEN = 4

# As with tiers, no name of a site is in here. A tenant without a limit gets the largest: a rule without one would fall
# back to its own. The metadata is where a gatekeeper's decision is, too: a listener that goes and the one that comes
# have the same routes.
_HAND_ON_LIMITS = f"""\
local units = {{{", ".join(f'{limit.key} = "{limit.unit.upper()}"' for limit in LIMITS)}}}
function envoy_on_request(request)
  local headers = request:headers()
  local client = headers:get("{CLIENT_HEADER}")
  local tenant = client and string.match(client, "^[^.]+")
  headers:remove("{TENANT_HEADER}")
  if not tenant then
    return
  end
  headers:add("{TENANT_HEADER}", tenant)
  local limits = request:filterContext():get(tenant)
  -- Envoy Gateway tries a script on a request whose context is text, and answers 500 everywhere if it fails.
  if type(limits) ~= "table" then
    limits = {{}}
  end
  local metadata = request:streamInfo():dynamicMetadata()
  for key, unit in pairs(units) do
    metadata:set("{DECISIONS}", key, {{requests_per_unit = limits[key] or {MOST_COUNTED}, unit = unit}})
  end
  local own = "keys." .. string.sub(client, #tenant + 2) .. "."
  for limit, most in pairs(limits) do
    local unit = units[string.match(limit, "[^.]+$")]
    if string.sub(limit, 1, #own) == own then
      metadata:set("{DECISIONS}", "key." .. string.sub(limit, #own + 1), {{requests_per_unit = most, unit = unit}})
    elseif string.find(limit, "models.", 1, true) == 1 then
      metadata:set("{DECISIONS}", limit, {{requests_per_unit = most, unit = unit}})
    end
  end
  local bytes = tonumber(headers:get("content-length") or 0) or 0
  metadata:set("{DECISIONS}", "prompt", math.floor(bytes / {_BYTES_OF_A_TOKEN}))
end
"""

# Envoy writes that one of a request's limits of which the least is left, without what it counts, when the limit service
# has answered. Where its number is that of two, it is the one whose window is the shorter, and of tokens rather than
# of requests, as each request takes at least one.
_NAME_NEAREST = f"""\
local seconds = {{MINUTE = 60, HOUR = 3600, DAY = 86400}}
local function go_duration(s)
  local text = s % 60 .. "s"
  if s >= 60 then
    text = math.floor(s / 60) % 60 .. "m" .. text
  end
  return s >= 3600 and math.floor(s / 3600) .. "h" .. text or text
end
local function name_nearest(headers, own)
  local read = {{}}
  for _, name in ipairs({{"x-ratelimit-limit", "x-ratelimit-remaining", "{RESET}"}}) do
    table.insert(read, tonumber(string.match(headers:get(name) or "", "^%d+") or ""))
    headers:remove(name)
  end
  local most, left, reset = unpack(read)
  if not reset or most == {MOST_COUNTED} or type(own) ~= "table" then
    return
  end
  local what, window
  for key, limit in pairs(own) do
    local counts = type(limit) == "table" and limit["requests_per_unit"] == most and string.match(key, "(%a+)_per_%a+$")
    local length = counts and seconds[limit["unit"]]
    if length and length >= reset and (not what or length < window or length == window and counts == "tokens") then
      what, window = counts, length
    end
  end
  if what then
    headers:replace("x-ratelimit-limit-" .. what, string.format("%d", most))
    headers:replace("x-ratelimit-remaining-" .. what, string.format("%d", left))
    headers:replace("x-ratelimit-reset-" .. what, go_duration(reset))
  end
end
"""
_ON_RESPONSE = f"""\
function envoy_on_response(response)
  local kind = response:headers():get("content-type")
  local own = response:streamInfo():dynamicMetadata():get("{DECISIONS}")
"""
_OF_STREAMS = """\
  if not own or not kind or not string.find(kind, "event-stream", 1, true) then
    return
  end
"""
# The AI gateway counts a stream's tokens when it ends, and nothing if its client leaves before: until then, what has
# gone by is counted here, an event for a token.
_COUNT_STREAMS = f"""\
  local used, last = own["prompt"] or 0, nil
  for chunk in response:bodyChunks() do
    local metadata = response:streamInfo():dynamicMetadata()
    local counted = (metadata:get("{COUNTED}") or {{}})["{USED}"]
    if counted ~= last then
      return
    end
    local _, events = string.gsub(chunk:getBytes(0, chunk:length()), "data:", "")
    used = used + events
    metadata:set("{COUNTED}", "{USED}", used)
    last = used
  end
end
"""
# The same for a ledger, which bills by kind, and by this count where the AI gateway has none (front-door.lua.j2).
_NOTE = f"""\
local function note(metadata, where, prompt, answer)
  metadata:set(where, "llm_input_token", prompt)
  metadata:set(where, "llm_output_token", answer)
  metadata:set(where, "{USED}", prompt + answer)
end
"""
_METER_STREAMS = f"""\
  local prompt, answer = own["prompt"] or 0, 0
  for chunk in response:bodyChunks() do
    local _, events = string.gsub(chunk:getBytes(0, chunk:length()), "data:%s*{{", "")
    answer = answer + events
    local metadata = response:streamInfo():dynamicMetadata()
    note(metadata, "{COUNTED}", prompt, answer)
    note(metadata, "{METERED}", prompt, answer)
  end
end
"""
_COUNT_PROMPT = f"""\
function envoy_on_request(request)
  local bytes = tonumber(request:headers():get("content-length")) or 0
  local metadata = request:streamInfo():dynamicMetadata()
  metadata:set("{DECISIONS}", "prompt", math.floor(bytes / {_BYTES_OF_A_TOKEN}))
end
"""


def limits_script(limits: Mapping[str, Mapping[str, int]], *, metered: bool = False) -> dict[str, Any]:
    """Script of an EnvoyExtensionPolicy that names each request's tenant, hands on its limits, and names the nearest.

    limits: tenant -> key of each limit that it has -> most of it. metered: whether a ledger gets what streams used.
    """
    context = {tenant: dict(sorted(most.items())) for tenant, most in sorted(limits.items())}
    source = _HAND_ON_LIMITS + _of_answers(metered=metered, limited=True)
    return {"type": "Inline", "inline": source, "filterContext": context}


def streams_script(*, limited: bool, metered: bool = False) -> dict[str, Any]:
    """Script of an EnvoyExtensionPolicy that counts streams, where a gatekeeper hands on each tenant's limits.

    limited: whether any tenant has one, and reads which is nearest. metered: as of `limits_script`.
    """
    return {"type": "Inline", "inline": _of_answers(metered=metered, limited=limited)}


def metered_script() -> dict[str, Any]:
    """Script that counts streams for a ledger, where neither limits nor a gatekeeper know a prompt's length."""
    return {"type": "Inline", "inline": _COUNT_PROMPT + _of_answers(metered=True, limited=False)}


def _of_answers(*, metered: bool, limited: bool) -> str:
    helpers = [_NOTE] * metered + [_NAME_NEAREST] * limited
    named = "  name_nearest(response:headers(), own)\n" if limited else ""
    return "".join([*helpers, _ON_RESPONSE, named, _OF_STREAMS, _METER_STREAMS if metered else _COUNT_STREAMS])
