"""Small word lists of what binds: words that forbid, allow, limit or ask, in twelve languages.

Each list has function words and a few stems, not sentences. `*` ends a stem or begins an ending,
and `_` joins the words of a phrase. A word of one language may mean something else in another, so
one word alone rarely makes a rule. `binding.py` has the weights.
"""

from collections.abc import Mapping
from typing import Final, Literal

Cue = Literal[
    "forbids",
    "bans",
    "negates",
    "excludes",
    "always",
    "only",
    "must",
    "may",
    "asks",
    "lasts",
    "limits",
    "fact",
    "agreed",
    "keeps",
    "corrects",
    "instead",
    "wishes",
    "spends",
    "points",
    "agrees",
    "refuses",
    "states",
    "tells",
    "muses",
    "lifts",
    "grants",
    "conditions",
    "heads",
    "continues",
    "bars",
]

_NEVER: Final = """
    never nie niemals jamais nunca jamás nooit nigdy никогда
    asla sakın mustn't must_not may_not mai_e_poi_mai
"""

WORDS: Final[Mapping[Cue, str]] = {
    "forbids": _NEVER,
    # The same, but only at the beginning of a clause.
    "bars": _NEVER,
    "bans": """
        forbidden prohibited disallowed off_limits hands_off not_allowed not_permitted no_account
        no_circumstances confidential untouched unchanged verboten untersagt keinesfalls
        unter_keinen_umständen vertraulich unverändert interdit* défense_de sous_aucun_prétexte
        confidentiel* prohibid* bajo_ningún confidencia* intact* vietat* proibit* riservat*
        invariat* proibid* verboden vertrouwelijk ongewijzigd zabrania* zabronion* nie_wolno
        nie_może poufn* żadn*
        запрещ* нельзя никаких конфиденц* yasak* gizli
        *meyin *mayın *meyiniz *mayınız *mesin *masın
    """,
    # Only at the beginning of a clause, where a negation is followed by a command.
    "negates": """
        don't do_not dont nicht kein* nichts ne n'* pas_de pas_d'* pas_plus aucun* nada non niente
        nessun* não nenhum* niet geen niets nie не ничего
    """,
    "excludes": """
        no not nothing without rien sin sem nic bez без
    """,
    "always": """
        always invariably whatever next_time every_time whenever throughout immer stets
        grundsätzlich
        jedes_mal toujours systématiquement siempre sempre altijd steeds zawsze każdorazowo
        всегда her_zaman daima mutlaka hiçbir*
    """,
    "only": """
        only solely exclusively nothing_but nur ausschließlich lediglich uniquement seulement
        exclusivement solo sólo solamente únicamente soltanto esclusivamente apenas somente só
        alleen uitsluitend slechts tylko wyłącznie jedynie
        только лишь исключительно sadece yalnızca yalnız
    """,
    "must": """
        must mandatory required requires obligatory needs_to has_to approval approved
        consent
        permission
        sign-off signature signatures muss müssen musst hat_zu sind_zu ist_zu pflicht genehmig*
        freigabe freigegeben zustimmung unterschrift* doit doivent devez il_faut exige*
        obligatoire
        accord autoris* signature* veuillez debe* tiene_que tienen_que hay_que obligatori*
        permiso
        autoriza* aprob* firma* firme* deve* devono bisogna permess* approva* conferma
        precisa* permiss* aprova* assinatura* tem_de tem_que moet* verplicht goedkeur*
        toestemming
        handtekening* musi* należy trzeba zgod* zatwierdz* podpis*
        должн* должен обязан* надо нужно необходимо треб* согласи* подпис*
        разреш* gerek* zorund* lazım onay* izin imza* *meli *malı
    """,
    "may": """
        may allowed permitted allow darfst dürfen darf erlaubt peux pouvez peut puedes puede
        podéis
        puoi può potete pode podes podem mag mogen możesz może wolno можно
        можешь можете
    """,
    "asks": """
        please bitte s'il_te_plaît s'il_vous_plaît merci_de por_favor per_favore
        per_cortesia graag
        alstublieft alsjeblieft proszę пожалуйста прошу lütfen
        prefer* lieber préfère* prefiero preferisco prefiro liever wolę предпочит*
        tercih*
        make_sure be_sure remember_to i_want_you ask_me check_with
    """,
    "lasts": """
        every_single_time you_keep_*ing keep_doing_it anything_you_write
        everything_you_write all_of_our for_all_of
        for_the_rest_of for_the_remainder_of rest_of_this rest_of_our from_here_on from_this_point
        for_this_session for_this_conversation for_this_chat for_our_conversation
        during_this_session during_this_conversation throughout_this throughout_our
        throughout_the_conversation throughout_the_session the_whole_session
        the_whole_conversation the_entire_session the_entire_conversation until_i_say
        until_i_tell all_your every_answer every_reply every_response every_message each_answer
        each_reply each_response all_answers all_replies all_responses für_den_rest
        in_jeder_antwort pour_le_reste por_el_resto per_il_resto pelo_resto voor_de_rest
        do_końca_rozmowy до_конца_разговора
        from_now_on from_today as_of_today going_forward until_further_notice in_future
        henceforth
        ab_sofort ab_jetzt ab_heute von_nun_an künftig bis_auf_weiteres à_partir_de désormais
        dorénavant jusqu'à_nouvel a_partir_de de_ahora_en hasta_nuevo d'ora_in_poi da_ora_in
        da_adesso da_oggi fino_a_nuovo de_agora_em doravante vanaf_nu vanaf_vandaag voortaan
        od_teraz od_dziś odtąd od_dzisiaj
        с_этого_момента с_сегодняшнего отныне впредь bundan_sonra bundan_böyle
    """,
    "limits": """
        maximum minimum max at_most at_least no_more no_later limit limited cap budget deadline
        closes expires exceed* above over under below within before until
        höchstens mindestens maximal* grenze obergrenze frist stichtag budget über unter
        mehr_als
        spätestens läuft bis plafond limite* délai échéance dépass* supérieur* au_plus au_moins
        avant máxim* mínim* límite* plazo tope vence* supera* más_de antes massim* minim*
        scadenza
        superar* oltre entro più_di máximo prazo acima mais_de até hoogstens maximaal limiet
        uiterlijk boven meer_dan maksym* najwyżej limit* termin* powyżej przekr* budżet*
        najpóźniej
        максим* не_более предел лимит* срок* превыш* бюджет*
        больше свыше не_позднее en_fazla azami sınır* bütçe* son_tarih son_teslim aşan geçme*
    """,
    "fact": """
        allerg* intoleran* colourblind colour-blind colorblind dyslexi* kosher halal vegan*
        vegetarian* coeliac celiac diabet* pregnant wheelchair asthma*
        lactose laktos* gluten vertrage_kein* schwanger rollstuhl enceinte alérg* alergi*
        végétarien* celiac*
        allergi* celíac* embarazad* intoller* incinta grávid* zwanger rolstoel uczulen* ciąż*
        аллерги* непереносим* беременн* вегетариан* alerji* hamile vejetaryen my_name_is
        ich_heiße je_m'appelle me_llamo se_llama mi_chiamo me_chamo mijn_naam nazywam меня_зовут
        legal_name
    """,
    "agreed": """
        agreed decided vereinbart beschlossen festgelegt abgemacht décidé convenu
        decidido decidimos acordado acordamos quedado hemos_decidido deciso concordat* stabilito
        combinado combinamos acertamos afgesproken besloten ustali* postanowi* uzgodni*
        договорил* решили условились karar* anlaştık
    """,
    "keeps": """
        avoid leave keep treat mask exclude stop quit skip as_it_is as_is vermeide* lass lassen
        évit* laisse* tel_quel telle_quelle evit* dej* tal_cual lascia* così_com'è deixe*
        como_está vermijd* laat unikaj* zostaw* избега* оставь* без_изменений как_есть kaçın*
        olduğu_gibi bırak*
    """,
    # Of the user himself. Adverbs in `-ly` between are left out before.
    "wishes": """
        i_avoid i_prefer i_dislike i_hate i_detest i_loathe i_refuse i_oppose
        i_follow_a i_follow_an i_exclusively i_only_use i_only_eat i_only_listen
        i_only_watch i_only_wear i_only_buy i_only_drink i_only_speak i_only_work i_only_take
        i_only_support i_always i_believe_in i_believe_that i_don't_eat
        i_don't_drink i_don't_like i_don't_use i_don't_enjoy i_don't_wear i_don't_watch
        i_don't_listen i_don't_buy i_don't_speak i_don't_work i_don't_take i_do_not_eat
        i_do_not_drink i_do_not_like i_do_not_use i_do_not_enjoy i_do_not_wear i_do_not_watch
        i_do_not_listen i_do_not_buy i_do_not_speak i_do_not_work i_do_not_take i_can't_stand
        i_can't_eat i_can't_drink i_can't_use i_can't_tolerate i_can't_take i_cannot_stand
        i_cannot_eat i_cannot_drink i_cannot_use i_cannot_tolerate i_cannot_take i'm_not_a_fan
        i_am_not_a_fan i'm_not_interested_in i_am_not_interested_in i'm_not_comfortable
        i_am_not_comfortable i'm_afraid_of i_am_afraid_of i'm_scared_of i_am_scared_of
        i'm_sensitive_to i_am_sensitive_to i'm_opposed_to i_am_opposed_to i'm_against
        i_am_against i_have_no_interest i_have_an_aversion i_have_a_phobia i_have_a_fear
        *_aversion_to *_phobia_of *_fear_of *_dislike_for *_dislike_of *_preference_for
        i'd_rather_you i'd_rather_not i'd_prefer_if i'd_prefer_that i'd_prefer_you
        i'd_prefer_not ich_bevorzuge je_préfère prefiero preferisco prefiro wolę предпочитаю
        ich_esse_kein* je_ne_mange no_como non_mangio não_como ik_eet_geen nie_jem duz* siez*
        tutoie* vouvoie* without_asking_me you_don't_need_to_ask you_don't_have_to_ask
        address_me call_me talk_to_me speak_to_me
        i_find_* i_get_anxious i_get_uncomfortable i_get_sick *phobic i_work_as i_live_in
    """,
    # Of one answer, or an idiom that asks for nothing.
    "spends": """
        this_time this_once just_once just_now for_now right_now in_this_answer in_this_reply
        in_this_case for_this_one never_mind no_worries no_problem no_idea no_rush
        take_your_time whatever_you_like whatever_you_want i_don't_care i_don't_mind
        diesmal dieses_mal cette_fois esta_vez stavolta questa_volta desta_vez deze_keer
        ditmaal tym_razem на_этот_раз bu_sefer bu_kez
    """,
    # To what is in this turn, such as a text below.
    "points": """
        following see_below the_above these given provided text_below list_below code_below
        the_text the_passage the_article the_question
        the_sentence this_text this_passage this_article this_question this_sentence this_task
        this_review this_function this_file this_code this_story this_email
        folgende* nachstehend* suivant* siguiente* seguent* volgende следующ* aşağıdaki
    """,
    # Only at the beginning of a sentence.
    "corrects": """
        no nein non nee nie нет hayır ne não correction korrektur corrección
        correzione
        correção correctie korekta поправка düzeltme actually scratch_that sorry
    """,
    "instead": """
        instead rather i_meant stattdessen sondern doch plutôt finalement au_lieu en_lugar
        en_vez
        mejor invece meglio piuttosto melhor em_vez in_plaats toch zamiast jednak лучше вместо
        а_не yerine aslında i_was_wrong not_anymore no_longer
    """,
    # How things are with the user, only at the beginning of a sentence.
    "states": """
        we're_on we_are_on we_use we_don't_use i'm_on_a i'm_on_mac* i'm_on_windows i'm_on_linux
        i_use i'm_a_beginner i_only_have my_budget_is my_budget i_can't_fly english_isn't
        wir_nutzen wir_verwenden nous_utilisons usamos usiamo we_gebruiken używamy
    """,
    # What happened, or how something is.
    "tells": """
        i've_never i_have_never have_never has_never had_never was_never were_never never_been
        never_had never_used_to never_seen never_understood never_knew never_thought
        never_said never_get
        always_been always_wanted always_had must_have_been must_not_have
        doesn't_mean
        noch_nie nie_verstanden nunca_he nunca_ha nunca_fui nunca_estive jamais_été
        non_ho_mai non_sono_mai nog_nooit nigdy_nie_by*
        if_i_were if_we_were i_would_* pretend imagine
    """,
    # The same without its subject, at the beginning of a sentence.
    "muses": """
        don't_need don't_think don't_know don't_see don't_want don't_care not_sure not_true
        not_worth
    """,
    # Takes back or changes something that was said before.
    "lifts": """
        forget scrap drop ignore lift lifted again anymore any_more no_longer no_need
        don't_need_to don't_have_to changed_my_mind change_of_plan is_off after_all exception
        except switch instead back_to stop_with went_up is_over take_back
        vergiss doch_wieder lieber_wieder doch_lieber nicht_mehr wieder oublie finalement
        ne_plus olvida olvídate ya_no de_nuevo dimentica non_più di_nuovo esquece esqueça
        vergeet toch_weer niet_meer zapomnij już_nie забудь больше_не unut artık
    """,
    # Allows something.
    "grants": """
        you_can you_may you're_allowed is_allowed are_allowed is_fine are_fine is_ok
        are_ok kannst könnt darfst dürft peux pouvez puedes podéis puoi
        potete podes podem pode mag kun możesz możecie można можешь можете можно
    """,
    # Asks for a consent, which is no change.
    "conditions": """
        ask unless until without before approval approve* permission consent confirm* ok
        sign-off frag* ohne bevor außer freigabe zustimmung demande* sans avant sauf accord
        sin antes salvo permiso senza prima tranne sem exceto zonder tenzij vraag bez zapyt*
        без спрос*
    """,
    # Limits the sentence before it. Only at the beginning of a sentence.
    "continues": """
        except unless only if but however otherwise exception apart_from other_than that this
        those these außer ausgenommen nur aber sonst wenn sauf mais sinon si excepto salvo pero
        tranne ma altrimenti se exceto mas behalve maar tenzij als chyba oprócz ale jeśli кроме
        если но
    """,
    # The heading of rules, before a colon.
    "heads": """
        rule rules ground_rules house_rules guideline guidelines preferences conventions
        regel regeln règles reglas regole regras regels zasady правила kurallar
    """,
    # A yes or a no, only at the beginning of a sentence.
    "agrees": """
        yes yeah yep ok okay sure certainly absolutely correct confirmed go_ahead please_proceed
        please_go_ahead sounds_good that_works that's_fine that's_correct proceed
        ja oui sí si sim sì tak да evet 是 是的 好 好的 可以 はい
    """,
    "refuses": "no nope not_yet nein non não nie нет hayır nee 不 不用 いいえ",
}

SIGNS: Final[Mapping[Cue, str]] = {
    "forbids": """
        绝对不 绝不 不要 不能 请勿 切勿 禁止 严禁 不得 不准 不许 不可 勿 别打 别用 别发 别把
        别再 别在 別 保密
        禁止 ないで ないこと てはいけ てはなら ないように 避けて 控えて 出さな 秘密 厳禁
    """,
    "always": """
        始终 总是 一律 务必 每次 永远 必ず 常に 絶対 いつも
    """,
    "only": "只能 只用 只可 仅限 仅 只有 だけ のみ しか",
    "must": """
        必须 需要 应该 应当 要求 签字 批准 同意 必要 なければ べき 署名 承認 許可
    """,
    "may": "可以 允许 てもよい てもいい ても構",
    "asks": """
        请 麻烦 希望 ください お願い ほしい にして しておいて
    """,
    "lasts": """
        从现在起 从今 今后 以后都 即日起 今後 これから 以降
    """,
    "limits": """
        上限 下限 最多 最少 不超过 超过 截止 期限 预算 以内 之前 以后 以前 まで 以内 以下
        以上 超え 締め切 締切
        予算
    """,
    "fact": """
        过敏 不耐受 怀孕 素食 アレルギー 妊娠 ベジタリアン
        我叫 と申します
    """,
    "agreed": "商定 约定 说好 决定 定好 決め 決ま 合意 決定",
    "keeps": "避免 保持 原样 不变 避け そのまま",
    "corrects": "不对 不是 更正 いいえ いや 訂正",
    "instead": "而是 改成 改为 改用 ではなく やはり 代わりに",
}
"""The same for scripts without spaces between words, or with endings in place of words."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


WAYS: Final = _words("""
    use keep avoid prefer ensure follow stick leverage prioritize adhere respect limit omit include
    exclude refer call assume remember treat speak answer reply respond no only leave
    don't never always without format structure phrase end begin start conclude sign
    cite quote label mark number highlight capitalize spell round express mention greet ask confirm
    verify warn flag present insert append put place separate wrap group document handle implement
    match register validate organize minimize maximize favor support maintain stay be
    if when before after unless
""")
"""First words of sentences that say how to work, and name no work."""
COMMANDS: Final = WAYS - {"after", "before", "if", "unless", "when"}
"""Those that begin no condition."""
TASKS: Final = _words("""
    write give show tell translate summarize summarise find check compare list create explain
    generate make
    solve compute describe discuss analyze analyse read rewrite fix add build change update remove
    rename
    run test search look book cancel send draft convert plan review schedule order open
    prove provide name imagine do explore elaborate identify suggest design develop calculate
    answer continue help finish proofread rephrase paraphrase shorten edit
    improve correct pretend
""")
"""First words of sentences that ask for work."""
NO_WAYS: Final = TASKS | _words("""
    i i'm i'll i've i'd my we our actually sorry what what's who where when why how which is are can
    could would do does did was were given suppose context let's
""")
"""First words of sentences that say nothing of how to work."""
MANNERS: Final = frozenset(
    ("in", "with", "as", "everything", "every", "each", "only", "no", "like", "using")
)
"""Second words behind a word of work that make it a way: "write in English"."""
POLITE: Final = frozenset(("please", "also", "then", "so", "and", "now"))
"""Words before the first word of a request."""
DEEDS: Final = _words("""
    implement document put insert place handle register validate verify wrap group append
    start begin end
""")
"""Words of work on a thing if an article follows, and of a way with other words."""
OBJECTS: Final = _words("it this these those them i we i'm need")
"""Second words of a sentence about what is in this turn, or of a story."""
PRESENTERS: Final = NO_WAYS | _words("the this here here's output error")
"""First words of a line that presents a text of others."""
FRAME: Final = _words("""
    this the our that these those it a session conversation chat discussion thread please and on out
    of for in to rule rules holds hold applies apply following guide follow instructions work day
    stick keep mind remember note everything we with you i want me your answers
""")
"""Further words of a sentence that only says how long another one holds."""
JOINERS: Final = _words("please and also so then und bitte et y e en i и а ve")
"""Words before the beginning of a clause: "please don't"."""
ADVERSATIVES: Final = _words("but aber mais pero ma mas maar ale но ama")
"""Words that always begin a clause: "read it but don't change it"."""
